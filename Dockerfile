# The image of every tier: one binary, as a user without rights. `docker build -t registry.example/team/plimsoll .`
FROM rust:1-slim-bookworm AS build
RUN apt-get update && apt-get install --no-install-recommends -y gcc libc6-dev make
WORKDIR /plimsoll
COPY . .
RUN cargo build --release --locked --package plimsoll-cli

# The same release of Debian: the binary needs its C library, and nothing else of it.
FROM debian:bookworm-slim
COPY --from=build /plimsoll/target/release/plimsoll /usr/local/bin/plimsoll
USER 65532:65532
ENTRYPOINT ["plimsoll"]
