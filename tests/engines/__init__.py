"""Real inference servers for the tests.

`fixtures` gives engines and models to tests (`pytest_plugins = ["engines.fixtures"]`); `builds` knows where engines come from and starts them;
`server` is a running one; `client` sends requests and reads the raw truth; `log` reads it in the server's own words; `proxy` stands in front of a
server and records what it is asked.
"""
