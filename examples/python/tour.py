"""Every kind of table in one program: python tour.py ADDRESS_OF_A_CHUNK

The server and its tables are those of ../README.md. An unexpected answer ends the program with 1.
"""
import base64
import hashlib
import os
import sys

import grpc
import redis
from busload.v1 import chunks_pb2, chunks_pb2_grpc

RESP = os.environ.get("BUSLOAD_RESP", "127.0.0.1:6380")
HTTP = os.environ.get("BUSLOAD_HTTP", "127.0.0.1:6381")


def expect(found, wanted):
    if found != wanted:
        sys.exit(f"expected {wanted!r}, got {found!r}")


def memory(client):
    """Tables in memory: strings, expiry, hashes, transactions."""
    client.set("sessions:42", "alice", ex=60)
    expect(client.get("sessions:42"), "alice")
    expect(0 < client.ttl("sessions:42") <= 60, True)

    client.delete("basket")
    expect(client.hset("basket", mapping={"apples": 3, "pears": 1}), 2)
    expect(client.hincrby("basket", "pears", 4), 5)
    expect(client.hgetall("basket"), {"apples": "3", "pears": "5"})

    client.mset({"account-a": 100, "account-b": 0})
    with client.pipeline(transaction=True) as transaction:
        transaction.decrby("account-a", 30).incrby("account-b", 30)
        expect(transaction.execute(), [70, 30])


def postgres(client):
    """A table in Postgres: a row is a key. Requests that wait together share a statement."""
    client.set("users:1", "Ada")
    expect(client.get("users:1"), "Ada")
    expect(client.get("users:0"), None)

    # A pipeline of redis-py is a transaction unless told otherwise, and only tables in memory have
    # transactions.
    keys = [f"users:{number}" for number in range(1, 101)]
    with client.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.set(key, f"name of {key}")
        for key in keys:
            pipeline.get(key)
        expect(pipeline.execute()[100:], [f"name of {key}" for key in keys])
    expect(client.delete(*keys), 100)


def chunks(client, address):
    """A chunk of a Dolt store by RESP and by gRPC. Its address is a hash of its contents."""
    nowhere = "0" * 32
    expect(client.exists(f"db:{address}", f"db:{nowhere}"), 1)
    contents = client.get(f"db:{address}")
    digest = hashlib.sha512(contents).digest()[:20]
    expect(base64.b32hexencode(digest).decode().lower(), address)

    with grpc.insecure_channel(HTTP) as channel:
        stub = chunks_pb2_grpc.ChunksStub(channel)
        one = stub.GetChunk(chunks_pb2.GetChunkRequest(store="db", address=digest), timeout=10)
        expect((one.found, one.contents), (True, contents))

        request = chunks_pb2.GetChunksRequest(store="db", addresses=digest + bytes(20))
        answers = list(stub.GetChunks(request, timeout=10))
        expect([chunk.contents for answer in answers for chunk in answer.chunks], [contents])
        expect([index for answer in answers for index in answer.missing], [1])


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: tour.py ADDRESS_OF_A_CHUNK")
    text = redis.Redis.from_url(f"redis://{RESP}", decode_responses=True)
    binary = redis.Redis.from_url(f"redis://{RESP}")
    memory(text)
    postgres(text)
    chunks(binary, sys.argv[1])
    print(f"redis-py {redis.__version__} and grpcio {grpc.__version__}: every kind of table")


if __name__ == "__main__":
    main()
