//! A client that sends the path of the socket as the authority, like old kubelets. No client library of Rust can send it.

use loona_hpack::{Decoder, Encoder};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// Bytes before a message: a flag, and the message's length.
const PREFIX: usize = 5;

fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

/// Sends one request, and returns the message of the answer. `patience` is the longest wait for more bytes of the answer.
pub(crate) fn call(socket: &Path, method: &str, message: &[u8], patience: Duration) -> Vec<u8> {
    let authority = socket.to_str().unwrap().replace('/', "%2F");
    let mut socket = UnixStream::connect(socket).unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", &authority),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let block = Encoder::new().encode(fields.map(|(name, value)| (name.as_bytes(), value.as_bytes())));
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let mut said = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    said.extend(frame(SETTINGS, 0, 0, &[]));
    said.extend(frame(HEADERS, END_HEADERS, 1, &block));
    said.extend(frame(DATA, END_STREAM, 1, &[&[0], length.as_slice(), message].concat()));
    socket.write_all(&said).unwrap();
    let (mut decoder, mut data, mut status) = (Decoder::new(), Vec::new(), None);
    while status.is_none() {
        let mut head = [0; 9];
        socket.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut content = vec![0; usize::try_from(length).unwrap()];
        socket.read_exact(&mut content).unwrap();
        match head[3] {
            HEADERS => {
                let fields = decoder.decode(&content).unwrap();
                status = fields.into_iter().find(|(name, _)| name == b"grpc-status");
            }
            DATA => data.extend(content),
            RESET => panic!("the server resets the stream"),
            _ => {}
        }
    }
    assert_eq!(status.unwrap().1, b"0", "{method}");
    data.split_off(PREFIX)
}
