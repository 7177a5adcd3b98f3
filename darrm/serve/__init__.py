"""One budget for clients on a network: questions and votes come in over HTTP, labels go out, each paid for once.

`questions` keeps what waits, `worker` is the one writer, `app` speaks HTTP, `clients` knows permissions. Importing this
loads no web server.
"""
