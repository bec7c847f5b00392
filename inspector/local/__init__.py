"""What the operating system tells of a server on this machine: its process, its connections, its memory, the files of its model."""
