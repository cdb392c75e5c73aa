"""Reads chunks through busload, with a store of one's own to fall back on.

This program asks busload for what busload has on local disk. It reads everything else from the
object store directly, so no request fails while busload is down, full or slow. busload fetches what
it was asked for meanwhile, and has it the next time.

    python get_chunk.py --own ~/remote db ADDRESS...
"""
import argparse
import base64
import sys

import grpc
from busload.v1 import chunks_pb2, chunks_pb2_grpc
from own_store import OwnStore

# A chunk may be larger than the 4 MiB that the library expects.
OPTIONS = [("grpc.max_receive_message_length", 300 << 20)]
# Local disk answers within milliseconds; waiting longer than this is not worth it.
TIMEOUT_S = 0.25


class Chunks:
    """Chunks of one store, by address."""

    def __init__(self, target, store, own):
        self._stub = chunks_pb2_grpc.ChunksStub(grpc.insecure_channel(target, options=OPTIONS))
        self._store = store
        self._own = own

    def get(self, address):
        """The chunk and where it came from; none if the store does not hold it."""
        request = chunks_pb2.GetChunkRequest(store=self._store, address=address, only_if_local=True)
        try:
            answer = self._stub.GetChunk(request, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            return self._own.get(address), f"own store, since busload says {error.code().name}"
        if answer.found:
            return answer.contents, "busload"
        if answer.not_local:
            return self._own.get(address), "own store, since it is not on busload's disk"
        return None, "busload"

    def get_many(self, addresses):
        """The same for many: one call, and one look at the own store for each that is left."""
        request = chunks_pb2.GetChunksRequest(
            store=self._store, addresses=b"".join(addresses), only_if_local=True)
        found, absent = {}, set()
        try:
            timeout = TIMEOUT_S + len(addresses) / 1000
            for message in self._stub.GetChunks(request, timeout=timeout):
                found.update((chunk.index, chunk.contents) for chunk in message.chunks)
                absent.update(message.missing)
        except grpc.RpcError:
            # What has come so far is good; the rest is read below.
            pass
        for index, address in enumerate(addresses):
            if index in found:
                yield found[index], "busload"
            elif index in absent:
                yield None, "busload"
            else:
                yield self._own.get(address), "own store"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--busload", default="127.0.0.1:6381", help="address of busload's HTTP port")
    parser.add_argument(
        "--own", required=True, help="the store itself: a directory, or an http(s) URL")
    parser.add_argument("store", help="name of the table in busload")
    parser.add_argument("addresses", nargs="+", help="32 characters each")
    arguments = parser.parse_args()
    chunks = Chunks(arguments.busload, arguments.store, OwnStore(arguments.own))
    addresses = [base64.b32hexdecode(address.upper()) for address in arguments.addresses]
    answers = [chunks.get(addresses[0])] if len(addresses) == 1 else chunks.get_many(addresses)
    for address, (contents, source) in zip(arguments.addresses, answers):
        length = "there is no such chunk" if contents is None else f"{len(contents)} bytes"
        print(f"{address}: {length} ({source})", file=sys.stderr)
        sys.stdout.buffer.write(contents or b"")


if __name__ == "__main__":
    main()
