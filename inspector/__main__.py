"""`python -m inspector`."""

from inspector.cli import main

if __name__ == "__main__":
    main()
