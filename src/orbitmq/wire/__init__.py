"""The RocketMQ protocol without I/O: bytes in, objects out.

Shared by the clients, the broker, the name server, Spark tasks and the tests.
"""
