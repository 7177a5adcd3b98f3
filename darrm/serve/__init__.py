"""One budget for clients on a network: questions and votes come in over HTTP, labels go out, each paid for once.

`questions` keeps what waits, `worker` is the one writer that draws, pays and keeps, `requests` validates what clients
send, `app` speaks HTTP, `clients` knows who may do what, and `client` is the other end. Importing this loads no web
server.
"""
