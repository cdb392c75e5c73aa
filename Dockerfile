# syntax=docker/dockerfile:1
#
# An image of one static binary that runs as nobody in particular:
#
#   docker build -t busload .
#   docker run -e BUSLOAD_PASSWORD=... -p 127.0.0.1:6380:6380 -v busload:/var/lib/busload busload
#
# docs/deploy.md has more. BASE may be scratch: then nothing but busload and the certificates of
# authorities is in the image.
ARG RUST=1.95
ARG BASE=gcr.io/distroless/static-debian12:nonroot

FROM rust:${RUST}-bookworm AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends musl-tools \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
ARG PROFILE=dist
# C code of libraries is compiled for musl, too.
ENV TARGET_CC=musl-gcc
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    target="$(uname -m)-unknown-linux-musl" \
    && rustup target add "$target" \
    && cargo build --locked --package busload --profile "$PROFILE" --target "$target" \
    && install -D "target/$target/$PROFILE/busload" /image/usr/bin/busload \
    && install -D -m 644 deploy/docker/busload.toml /image/etc/busload/busload.toml \
    && install -D -m 644 /etc/ssl/certs/ca-certificates.crt \
        /image/etc/ssl/certs/ca-certificates.crt \
    && install -D -m 644 -t /image/usr/share/doc/busload LICENSE-APACHE LICENSE-MIT \
    && install -d /data

FROM ${BASE}
LABEL org.opencontainers.image.title="busload" \
      org.opencontainers.image.description="Tables in memory, in Postgres and in buckets" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0"
COPY --from=build /image /
# The user `nonroot` of distroless images.
COPY --from=build --chown=65532:65532 /data /var/lib/busload
USER 65532:65532
VOLUME /var/lib/busload
# RESP; HTTP, gRPC and Dolt's clients.
EXPOSE 6380 6381
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s --retries=3 \
    CMD ["/usr/bin/busload", "health", "--config", "/etc/busload/busload.toml"]
ENTRYPOINT ["/usr/bin/busload"]
CMD ["serve", "--config", "/etc/busload/busload.toml"]
