//! Streams that are opened and reset as fast as possible, by proxies that give up and by floods.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
/// `:method: POST`, `:path: /`, `:scheme: http` and `:authority: a` by HPACK's static table.
const HEAD: [u8; 6] = [0x83, 0x84, 0x86, 0x41, 0x01, b'a'];

fn frame(of: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    [
        &(payload.len() as u32).to_be_bytes()[1..],
        &[of, flags],
        &id.to_be_bytes(),
        payload,
    ]
    .concat()
}

fn greeting() -> Vec<u8> {
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, &[]),
    ]
    .concat()
}

fn given_up(number: u32, body: &[u8]) -> Vec<u8> {
    let id = 2 * number + 1;
    let parts = [
        frame(HEADERS, 4, id, &HEAD),
        frame(DATA, 0, id, body),
        frame(RESET, 0, id, &8_u32.to_be_bytes()),
    ];
    parts.concat()
}

#[tokio::test]
async fn proxy_may_give_up_hundreds_of_requests() {
    let echo = Echo::start(Protection::Plain).await;
    let mut stream = TcpStream::connect(echo.http2).await.unwrap();
    let mut sent = greeting();
    sent.extend((0..2_000).flat_map(|number| given_up(number, &[0; 60])));
    // A stream's id of two bytes that no other frame has.
    let last = 0xA0B1_u32;
    sent.extend(frame(HEADERS, 5, last, &HEAD));
    stream.write_all(&sent).await.unwrap();
    let mut received = Vec::new();
    // Its head, with the end of the stream.
    let answer = [&[HEADERS, 5][..], &last.to_be_bytes()].concat();
    while !received
        .windows(answer.len())
        .any(|window| window == answer)
    {
        assert_ne!(
            stream.read_buf(&mut received).await.unwrap(),
            0,
            "closed before the last answer"
        );
    }
}

#[tokio::test]
async fn flood_of_resets_ends_its_connection() {
    let echo = Echo::start(Protection::Plain).await;
    let mut stream = TcpStream::connect(echo.http2).await.unwrap();
    let flood = (0..500)
        .flat_map(|number| given_up(number, &[]))
        .collect::<Vec<u8>>();
    stream
        .write_all(&[greeting(), flood].concat())
        .await
        .unwrap();
    // End of the connection, or its reset.
    let _ = stream.read_to_end(&mut Vec::new()).await;
    assert!(echo.most.load(Ordering::Relaxed) < 100, "{:?}", echo.most);
}

/// Floods that each connection survives, since they look like a proxy's.
#[tokio::test]
async fn flood_leaves_room_and_turns_to_others() {
    const PEERS: usize = 60;
    let echo = Echo::with(Protection::Plain, Connections::fair(4 * PEERS), None).await;
    let floods: Vec<_> = (0..PEERS)
        .map(|_| {
            let port = echo.http2;
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(port).await.unwrap();
                let (mut read, mut write) = stream.split();
                let flood = async {
                    write.write_all(&greeting()).await?;
                    for batch in 0.. {
                        let numbers = batch * 100..(batch + 1) * 100;
                        let flood: Vec<u8> = numbers
                            .flat_map(|number| given_up(number, &[0; 60]))
                            .collect();
                        write.write_all(&flood).await?;
                    }
                    std::io::Result::Ok(())
                };
                let mut received = Vec::new();
                let _ = tokio::join!(flood, read.read_to_end(&mut received));
            })
        })
        .collect();
    until(|| echo.begun.load(Ordering::Relaxed) > 20_000).await;
    for _ in 0..10 {
        let (mut first, mut second) = (echo.connect1().await, echo.connect2().await);
        assert_eq!(
            text(first.send_request(post(full("other"))).await.unwrap()).await,
            "other"
        );
        assert_eq!(
            text(second.send_request(post(full("other"))).await.unwrap()).await,
            "other"
        );
    }
    floods.iter().for_each(JoinHandle::abort);
    // A turn of each peer, and its earlier requests.
    assert!(
        echo.most.load(Ordering::Relaxed) < PEERS * 100,
        "{:?}",
        echo.most
    );
}
