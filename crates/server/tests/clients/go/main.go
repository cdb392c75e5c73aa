// go-redis against the server whose port is the argument, in both protocols.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func expect[T comparable](found, wanted T) {
	if found != wanted {
		panic(fmt.Sprintf("%v instead of %v", found, wanted))
	}
}

func run(protocol int) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1], Protocol: protocol})
	defer client.Close()
	check(client.FlushAll(ctx).Err())
	check(client.Set(ctx, "k", "v", 0).Err())
	expect(client.Get(ctx, "k").Val(), "v")
	expect(errors.Is(client.Get(ctx, "none").Err(), redis.Nil), true)
	expect(client.HSet(ctx, "h", "a", "1", "b", "2").Val(), 2)
	expect(client.HGetAll(ctx, "h").Val()["b"], "2")

	pipe := client.Pipeline()
	for i := 0; i < 1000; i++ {
		pipe.Set(ctx, "p:"+strconv.Itoa(i), i, 0)
	}
	_, err := pipe.Exec(ctx)
	check(err)

	tx := client.TxPipeline()
	incremented := tx.Incr(ctx, "n")
	tx.Set(ctx, "t", "1", 0)
	_, err = tx.Exec(ctx)
	check(err)
	expect(incremented.Val(), 1)

	// The key changes in between the first time.
	attempts := 0
	for {
		err = client.Watch(ctx, func(tx *redis.Tx) error {
			attempts++
			if attempts == 1 {
				check(client.Incr(ctx, "n").Err())
			}
			_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Set(ctx, "n", "100", 0)
				return nil
			})
			return err
		}, "n")
		if !errors.Is(err, redis.TxFailedErr) {
			break
		}
	}
	check(err)
	expect(attempts, 2)

	seen := map[string]bool{}
	keys := client.Scan(ctx, 0, "p:*", 100).Iterator()
	for keys.Next(ctx) {
		seen[keys.Val()] = true
	}
	check(keys.Err())
	expect(len(seen), 1000)
}

func main() {
	run(2)
	run(3)
	fmt.Println("go-redis: RESP2 and RESP3")
}
