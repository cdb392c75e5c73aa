"""GetChunk in ten lines: python minimal.py STORE ADDRESS > chunk"""
import base64
import sys

import grpc
from busload.v1 import chunks_pb2, chunks_pb2_grpc

store, address = sys.argv[1], base64.b32hexdecode(sys.argv[2].upper())
chunks = chunks_pb2_grpc.ChunksStub(grpc.insecure_channel("127.0.0.1:6381"))
answer = chunks.GetChunk(chunks_pb2.GetChunkRequest(store=store, address=address), timeout=10)
sys.stdout.buffer.write(answer.contents) if answer.found else sys.exit("there is no such chunk")
