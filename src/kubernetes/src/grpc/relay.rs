//! Relay between old gRPC clients and the server.
//!
//! A kubelet that dials a socket by its path sends that path, percent-encoded, as `:authority`. The server's `h2` crate resets
//! such a stream. So the relay replaces the path by `localhost`. It passes all other frames unchanged.

use loona_hpack::Decoder;
use loona_hpack::encoder::encode_integer_into;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, copy, duplex};
use tokio::net::UnixStream;

/// Most bytes of a frame. RFC 9113 sets this value for a server that does not ask for larger frames.
const FRAME: usize = 16_384;
/// Most bytes of all headers of a request. A kubelet sends about 300.
const BLOCK: usize = 64 << 10;
/// Bytes of the preface that an HTTP/2 client sends first.
const PREFACE: usize = 24;
/// Bytes before a frame's content: its length, type, flags and stream.
const HEAD: usize = 9;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// Starts the relay of a client's connection, and returns the end for the server.
pub(crate) fn through(client: UnixStream) -> DuplexStream {
    let (ours, servers) = duplex(4 * FRAME);
    tokio::spawn(async move {
        let (from_client, mut to_client) = client.into_split();
        let (mut from_server, to_server) = tokio::io::split(ours);
        let asked = async {
            let asked = forward(from_client, to_server).await;
            if let Err(error) = &asked {
                tracing::warn!("a gRPC client was cut off: {error}");
            }
            asked
        };
        let answered = async {
            copy(&mut from_server, &mut to_client).await?;
            to_client.shutdown().await
        };
        // If one direction fails, both end. If the client only closes its sending side, it still gets the server's answers.
        let _cut_off = tokio::try_join!(asked, answered);
    });
    servers
}

/// A frame.
#[derive(Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    content: Vec<u8>,
}

/// Copies the client's bytes to the server, and replaces each `:authority`.
async fn forward(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut preface = [0; PREFACE];
    from.read_exact(&mut preface).await?;
    to.write_all(&preface).await?;
    let mut decoder = Decoder::new();
    while let Some(frame) = read(&mut from).await? {
        if frame.kind == HEADERS {
            let (stream, ends) = (frame.stream, frame.flags & END_STREAM);
            let block = block(&mut from, frame).await?;
            to.write_all(&headers(stream, ends, &rewritten(&mut decoder, &block)?)).await?;
        } else {
            to.write_all(&written(&frame)).await?;
        }
    }
    to.shutdown().await
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// Reads the next frame. Returns none at the end of the connection.
async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Frame>> {
    let mut head = [0; HEAD];
    match from.read_exact(&mut head).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    };
    let [a, b, c, kind, flags, stream @ ..] = head;
    let length = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap_or(usize::MAX);
    if length > FRAME {
        return Err(invalid("a frame is larger than 16384 bytes"));
    }
    let mut content = vec![0; length];
    from.read_exact(&mut content).await?;
    Ok(Some(Frame { kind, flags, stream: u32::from_be_bytes(stream), content }))
}

fn written(frame: &Frame) -> Vec<u8> {
    let length = u32::try_from(frame.content.len()).unwrap_or(u32::MAX).to_be_bytes();
    let [_, a, b, c] = length;
    let mut bytes = vec![a, b, c, frame.kind, frame.flags];
    bytes.extend(frame.stream.to_be_bytes());
    bytes.extend(&frame.content);
    bytes
}

/// Reads the whole block of headers that begins with the frame `first`. Continuation frames follow until one ends the headers.
/// The result has no padding and no priority.
async fn block(from: &mut (impl AsyncRead + Unpin), first: Frame) -> io::Result<Vec<u8>> {
    let short = || invalid("a frame of headers is shorter than its padding or priority");
    let mut content = first.content.as_slice();
    if first.flags & PADDED != 0 {
        let (padding, rest) = content.split_first().ok_or_else(short)?;
        let end = rest.len().checked_sub(usize::from(*padding)).ok_or_else(short)?;
        content = rest.get(..end).ok_or_else(short)?;
    }
    if first.flags & PRIORITY != 0 {
        content = content.get(5..).ok_or_else(short)?;
    }
    let mut block = content.to_vec();
    let mut flags = first.flags;
    while flags & END_HEADERS == 0 {
        let next = read(from).await?.ok_or_else(|| invalid("the headers do not end"))?;
        if next.kind != CONTINUATION || next.stream != first.stream {
            return Err(invalid("another frame stands between headers"));
        }
        block.extend(next.content);
        if block.len() > BLOCK {
            return Err(invalid("the headers are larger than 65536 bytes"));
        }
        flags = next.flags;
    }
    Ok(block)
}

/// Encodes the headers with another authority. Literals do not change the decoder's table at the server.
fn rewritten(decoder: &mut Decoder<'_>, block: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(block.len());
    let mut failed = Ok(());
    let mut text = |bytes: &mut Vec<u8>, text: &[u8]| {
        if let Err(error) = encode_integer_into(text.len(), 7, 0, bytes) {
            failed = Err(error);
        }
        bytes.extend(text);
    };
    decoder
        .decode_with_cb(block, |name, value| {
            let value = if *name == *b":authority" { b"localhost" } else { &*value };
            bytes.push(0);
            text(&mut bytes, &name);
            text(&mut bytes, value);
        })
        .map_err(|error| invalid(&format!("the headers cannot be read: {error:?}")))?;
    failed.map(|()| bytes)
}

/// Splits a block of headers into frames.
fn headers(stream: u32, ends: u8, block: &[u8]) -> Vec<u8> {
    let mut parts = block.chunks(FRAME).peekable();
    let (mut kind, mut flags, mut bytes) = (HEADERS, ends, Vec::new());
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            flags |= END_HEADERS;
        }
        bytes.extend(written(&Frame { kind, flags, stream, content: part.to_vec() }));
        (kind, flags) = (CONTINUATION, 0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use loona_hpack::Encoder;

    /// Returns the headers that the server gets from `frames`.
    async fn seen(frames: &[Frame]) -> io::Result<Vec<(String, String)>> {
        let mut bytes = vec![7; PREFACE];
        frames.iter().for_each(|frame| bytes.extend(written(frame)));
        let mut out = Vec::new();
        forward(bytes.as_slice(), &mut out).await?;
        assert_eq!(out[..PREFACE], [7; PREFACE]);
        let (mut from, mut decoder, mut found) = (&out[PREFACE..], Decoder::new(), Vec::new());
        while let Some(frame) = read(&mut from).await? {
            if frame.kind == HEADERS {
                let block = block(&mut from, frame).await?;
                found.extend(decoder.decode(&block).unwrap());
            }
        }
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ok(found.into_iter().map(|(name, value)| (text(name), text(value))).collect())
    }

    fn frame(kind: u8, flags: u8, content: Vec<u8>) -> Frame {
        Frame { kind, flags, stream: 1, content }
    }

    #[tokio::test]
    async fn a_path_as_authority_becomes_localhost_also_where_tables_and_padding_are_used() {
        let path = b"%2Fvar%2Flib%2Fkubelet%2Fx.sock".as_slice();
        let mut encoder = Encoder::new();
        let fields = [(b":authority".as_slice(), path), (b"x".as_slice(), b"y")];
        let [first, second] = [0, 1].map(|_| encoder.encode(fields));
        assert!(second.len() < first.len(), "the table is used");
        let (left, right) = first.split_at(5);
        let mut padded = vec![2, 0, 0, 0, 0, 9];
        padded.extend(left);
        padded.extend([0, 0]);
        let frames = [
            frame(HEADERS, PADDED | PRIORITY | END_STREAM, padded),
            frame(CONTINUATION, END_HEADERS, right.to_vec()),
            frame(0, 0, b"data".to_vec()),
            frame(HEADERS, END_HEADERS, second),
        ];
        let expected = [(":authority", "localhost"), ("x", "y")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(seen(&frames).await.unwrap(), [expected.clone(), expected].concat());
    }

    #[tokio::test]
    async fn headers_over_one_frame_are_split_and_those_without_end_are_refused() {
        let long = vec![b'a'; 3 * FRAME];
        let block = headers(1, 0, &Encoder::new().encode([(b"x".as_slice(), long.as_slice())]));
        let mut all = vec![0; PREFACE];
        all.extend(&block);
        let mut out = Vec::new();
        forward(all.as_slice(), &mut out).await.unwrap();
        assert!(out.len() > 3 * FRAME + 3 * HEAD);
        let endless: Vec<Frame> = std::iter::once(frame(HEADERS, 0, vec![0; FRAME]))
            .chain((0..9).map(|_| frame(CONTINUATION, 0, vec![0; FRAME])))
            .collect();
        assert!(seen(&endless).await.unwrap_err().to_string().contains("65536"));
        assert!(seen(&[frame(HEADERS, PADDED | END_HEADERS, vec![9, 1])]).await.is_err());
        assert!(seen(&[frame(HEADERS, END_HEADERS, vec![0xff; 20])]).await.is_err());
    }
}
