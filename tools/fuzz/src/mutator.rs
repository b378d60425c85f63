//! Changes of inputs: bits, numbers, lengths, tokens of the format, and pieces of other inputs.

use fastrand::Rng;

use crate::dictionary::Dictionary;

const BYTES_MAX: usize = 64 << 10;
const CHANGES_MAX: usize = 8;
/// Edges of the byte range, and continuation bytes of varints.
const EDGES: [u8; 9] = [0, 1, 0x7f, 0x80, 0x81, 0xfe, 0xff, b'\n', b' '];
/// Numbers at the edges of the input that parsers and state machines accept.
const NUMBERS: [&str; 20] = [
    "0",
    "1",
    "-1",
    "-0",
    "0.5",
    "1e308",
    "1e309",
    "-1e309",
    "1e-308",
    "5e-324",
    "NaN",
    "inf",
    ".inf",
    "255",
    "65536",
    "4294967296",
    "4611686018427387904",
    "9223372036854775808",
    "18446744073709551615",
    "99999999999999999999999",
];

/// Returns a changed copy of an input, with pieces of another.
#[must_use]
pub fn mutate(input: &[u8], other: &[u8], dictionary: Dictionary, rng: &mut Rng) -> Vec<u8> {
    let is_framed = matches!(dictionary, Dictionary::Reports | Dictionary::Directives);
    let mut bytes = if is_framed && rng.u8(..8) > 0 {
        mutate_frames(input, other, dictionary, rng)
    } else {
        let mut bytes = input.to_vec();
        (0..=rng.usize(..CHANGES_MAX)).for_each(|_| change(&mut bytes, other, dictionary, rng));
        bytes
    };
    bytes.truncate(BYTES_MAX);
    bytes
}

/// Changes the content and the order of frames. Their lengths stay correct.
fn mutate_frames(input: &[u8], other: &[u8], dictionary: Dictionary, rng: &mut Rng) -> Vec<u8> {
    let mut frames: Vec<Vec<u8>> = frames(input).map(<[u8]>::to_vec).collect();
    let others: Vec<&[u8]> = self::frames(other).collect();
    for _ in 0..=rng.usize(..CHANGES_MAX) {
        let at = rng.usize(..frames.len().max(1));
        let foreign = others
            .get(rng.usize(..others.len().max(1)))
            .copied()
            .unwrap_or_default();
        match (frames.get_mut(at), rng.u8(..8)) {
            (None, _) | (_, 0) => frames.insert(at, foreign.to_vec()),
            (Some(_), 1) => drop(frames.remove(at)),
            (Some(frame), 2) => {
                let copy = frame.clone();
                frames.insert(at, copy);
            }
            // A field after the others replaces a number, and adds to a list.
            (Some(frame), 3..=5) => frame.extend(dictionary.draw(rng)),
            (Some(frame), _) => change(frame, foreign, dictionary, rng),
        }
    }
    framed(&frames)
}

/// Splits an input into frames, each after its length as two bytes.
pub fn frames(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = data.split_first_chunk()?;
        let (frame, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        data = rest;
        Some(frame)
    })
}

/// Joins frames, each cut to the maximum of its length field.
#[must_use]
pub fn framed(frames: &[Vec<u8>]) -> Vec<u8> {
    let frame = |frame: &Vec<u8>| {
        let length = u16::try_from(frame.len()).unwrap_or(u16::MAX);
        [&length.to_le_bytes()[..], &frame[..usize::from(length)]].concat()
    };
    frames.iter().flat_map(frame).collect()
}

fn change(bytes: &mut Vec<u8>, other: &[u8], dictionary: Dictionary, rng: &mut Rng) {
    let range = range(bytes.len(), rng);
    match rng.u8(..14) {
        0 => edit(bytes, rng, |byte, rng| byte ^ 1 << rng.u8(..8)),
        1 => edit(bytes, rng, |_, rng| rng.u8(..)),
        2 => edit(bytes, rng, |_, rng| EDGES[rng.usize(..EDGES.len())]),
        // A length, or a number next to the allowed one.
        3 => edit(bytes, rng, |byte, rng| {
            byte.wrapping_add(rng.u8(..9)).wrapping_sub(4)
        }),
        4 => drop(bytes.drain(range)),
        5 => bytes.truncate(range.start),
        6 => {
            let piece = bytes[range.clone()].to_vec();
            insert(bytes, range.end, &piece);
        }
        // Repeated often, to find costs that are more than linear.
        7 => {
            let piece = bytes[range.clone()].repeat(1 << rng.u8(1..9));
            insert(bytes, range.end, &piece);
        }
        8 => {
            let piece = bytes[range].to_vec();
            let at = rng.usize(..=bytes.len());
            insert(bytes, at, &piece);
        }
        9 => {
            let piece = other[self::range(other.len(), rng)].to_vec();
            insert(bytes, range.start, &piece);
        }
        10 => {
            bytes.truncate(range.start);
            bytes.extend_from_slice(&other[self::range(other.len(), rng)]);
        }
        11 => number(bytes, range.start, rng),
        12 => {
            let token = dictionary.draw(rng);
            let end = (range.start + token.len()).min(bytes.len());
            bytes.splice(range.start..end, token);
        }
        _ => insert(bytes, range.start, &dictionary.draw(rng)),
    }
}

fn range(length: usize, rng: &mut Rng) -> std::ops::Range<usize> {
    let start = rng.usize(..=length);
    let longest = if rng.bool() { 16 } else { length };
    start..start + rng.usize(..=longest.min(length - start))
}

fn edit(bytes: &mut [u8], rng: &mut Rng, change: impl FnOnce(u8, &mut Rng) -> u8) {
    if !bytes.is_empty() {
        let at = rng.usize(..bytes.len());
        bytes[at] = change(bytes[at], rng);
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    let room = BYTES_MAX.saturating_sub(bytes.len());
    bytes.splice(at..at, piece[..piece.len().min(room)].iter().copied());
}

fn number(bytes: &mut Vec<u8>, from: usize, rng: &mut Rng) {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let Some(start) = bytes[from..]
        .iter()
        .position(u8::is_ascii_digit)
        .map(|at| from + at)
    else {
        return;
    };
    let end = bytes[start..]
        .iter()
        .position(|byte| !is_digit(byte))
        .map_or(bytes.len(), |at| start + at);
    bytes.splice(start..end, NUMBERS[rng.usize(..NUMBERS.len())].bytes());
}
