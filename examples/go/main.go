// Every kind of table in one program: go run . ADDRESS_OF_A_CHUNK
//
// The server and its tables are those of ../README.md. An unexpected answer ends the program with 1.
package main

//go:generate go build -o bin/ google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
//go:generate protoc -I ../../crates/proto/proto --plugin=bin/protoc-gen-go --plugin=bin/protoc-gen-go-grpc --go_out=. --go_opt=module=busload.example/tour,Mbusload/v1/chunks.proto=busload.example/tour/busloadv1 --go-grpc_out=. --go-grpc_opt=module=busload.example/tour,Mbusload/v1/chunks.proto=busload.example/tour/busloadv1 busload/v1/chunks.proto

import (
	"context"
	"crypto/sha512"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"reflect"
	"strings"
	"time"

	"busload.example/tour/busloadv1"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: tour ADDRESS_OF_A_CHUNK")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: variable("BUSLOAD_RESP", "127.0.0.1:6380")})
	defer client.Close()
	memory(ctx, client)
	postgres(ctx, client)
	chunks(ctx, client, os.Args[1])
	fmt.Printf("go-redis %s and grpc-go %s: every kind of table\n", redis.Version(), grpc.Version)
}

// Tables in memory: strings, expiry, hashes, transactions.
func memory(ctx context.Context, client *redis.Client) {
	must(client.Set(ctx, "sessions:42", "alice", time.Minute).Result())
	expect(must(client.Get(ctx, "sessions:42").Result()), "alice")
	left := must(client.TTL(ctx, "sessions:42").Result())
	expect(0 < left && left <= time.Minute, true)

	must(client.Del(ctx, "basket").Result())
	expect(must(client.HSet(ctx, "basket", "apples", 3, "pears", 1).Result()), 2)
	expect(must(client.HIncrBy(ctx, "basket", "pears", 4).Result()), 5)
	basket := map[string]string{"apples": "3", "pears": "5"}
	expect(must(client.HGetAll(ctx, "basket").Result()), basket)

	must(client.MSet(ctx, "account-a", 100, "account-b", 0).Result())
	var a, b *redis.IntCmd
	must(client.TxPipelined(ctx, func(transaction redis.Pipeliner) error {
		a = transaction.DecrBy(ctx, "account-a", 30)
		b = transaction.IncrBy(ctx, "account-b", 30)
		return nil
	}))
	expect([]int64{a.Val(), b.Val()}, []int64{70, 30})
}

// A table in Postgres: a row is a key. Requests that wait together share a statement.
func postgres(ctx context.Context, client *redis.Client) {
	must(client.Set(ctx, "users:1", "Ada", 0).Result())
	expect(must(client.Get(ctx, "users:1").Result()), "Ada")
	expect(errors.Is(client.Get(ctx, "users:0").Err(), redis.Nil), true)

	// Pipelined sends no MULTI, other than TxPipelined: only tables in memory have transactions.
	var keys []string
	for number := range 100 {
		keys = append(keys, fmt.Sprintf("users:%d", number+1))
	}
	replies := must(client.Pipelined(ctx, func(pipeline redis.Pipeliner) error {
		for _, key := range keys {
			pipeline.Set(ctx, key, "name of "+key, 0)
		}
		for _, key := range keys {
			pipeline.Get(ctx, key)
		}
		return nil
	}))
	for index, key := range keys {
		expect(replies[len(keys)+index].(*redis.StringCmd).Val(), "name of "+key)
	}
	expect(must(client.Del(ctx, keys...).Result()), 100)
}

// A chunk of a Dolt store by RESP and by gRPC. Its address is a hash of its contents.
func chunks(ctx context.Context, client *redis.Client, address string) {
	nowhere := strings.Repeat("0", 32)
	expect(must(client.Exists(ctx, "db:"+address, "db:"+nowhere).Result()), 1)
	contents := must(client.Get(ctx, "db:"+address).Bytes())
	digest := sha512.Sum512(contents)
	hash := digest[:20]
	expect(strings.ToLower(base32.HexEncoding.EncodeToString(hash)), address)

	plaintext := grpc.WithTransportCredentials(insecure.NewCredentials())
	connection := must(grpc.NewClient(variable("BUSLOAD_HTTP", "127.0.0.1:6381"), plaintext))
	defer connection.Close()
	stub := busloadv1.NewChunksClient(connection)
	one := must(stub.GetChunk(ctx, &busloadv1.GetChunkRequest{Store: "db", Address: hash}))
	expect(one.Found, true)
	expect(one.Contents, contents)

	addresses := append(append([]byte{}, hash...), make([]byte, 20)...)
	request := &busloadv1.GetChunksRequest{Store: "db", Addresses: addresses}
	stream := must(stub.GetChunks(ctx, request))
	var found [][]byte
	var missing []uint32
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		for _, chunk := range must(answer, err).Chunks {
			found = append(found, chunk.Contents)
		}
		missing = append(missing, answer.Missing...)
	}
	expect(found, [][]byte{contents})
	expect(missing, []uint32{1})
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func expect[T any](found, wanted T) {
	if !reflect.DeepEqual(found, wanted) {
		log.Fatalf("expected %v, got %v", wanted, found)
	}
}

func variable(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}
