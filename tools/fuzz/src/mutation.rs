//! Changed copies of the inputs of a corpus, because random bytes resemble few formats.

use std::iter;
use std::ops::Range;

use crate::schema;
use crate::script::Script;

const BYTES_MAX: usize = 64 << 10;
const CHANGES_MAX: u64 = 8;
const COPIES_MAX: usize = 512;
/// Edges of the byte range, and continuation bytes of varints.
const EDGES: [u8; 9] = [0, 1, 0x7f, 0x80, 0x81, 0xfe, 0xff, b'\n', b' '];
/// Numbers at the edges of the input that parsers and state machines accept.
const NUMBERS: [&str; 24] = [
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
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

/// Format of a target's inputs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Format {
    /// Bytes of any meaning, which random bytes continue.
    Script,
    /// Lines, or words and the signs between them. Equal signs are one piece.
    Text,
    /// A message of this name.
    Message(&'static str),
    /// Messages of this name, each after its length as two bytes.
    Messages(&'static str),
}

/// Returns a changed copy of one input of a corpus, with pieces of another one.
pub(crate) fn mutate(corpus: &[Vec<u8>], format: Format, script: &mut Script<'_>) -> Vec<u8> {
    let base = script.choose(corpus);
    if let Format::Script = format {
        let kept = script.index(base.len() + 1);
        return [&base[..kept], script.0].concat();
    }
    let is_lines = script.below(2) == 1;
    let mut pieces = split(base, format, is_lines);
    let other = script.choose(corpus);
    let others = split(other, format, is_lines);
    for _ in 0..=script.below(CHANGES_MAX) {
        let range = range(pieces.len(), script);
        let other = &others[self::range(others.len(), script)];
        match script.below(8) {
            0 => drop(pieces.drain(range)),
            1 => drop(pieces.splice(range, other.to_vec())),
            2 => drop(pieces.splice(range.start..range.start, other.to_vec())),
            3 => {
                // Often, to find costs that are more than linear.
                let times = (1 << script.below(9)).min(1 + COPIES_MAX / range.len().max(1));
                let piece = pieces[range.clone()].to_vec();
                let copies = iter::repeat_n(piece, times).flatten();
                drop(pieces.splice(range.start..range.start, copies));
            }
            _ => {
                let is_number = |piece: &Vec<u8>| piece.first().is_some_and(u8::is_ascii_digit);
                let number = pieces[range.start..].iter().position(is_number);
                // Numbers are few, and decide more than most words.
                let ahead = number.filter(|_| script.below(2) == 1).unwrap_or(0);
                if let Some(piece) = pieces.get_mut(range.start + ahead) {
                    edit(piece, format, script);
                }
            }
        }
    }
    let mut bytes = match format {
        Format::Messages(_) => framed(&pieces),
        _ => pieces.concat(),
    };
    bytes.truncate(BYTES_MAX);
    bytes
}

fn range(length: usize, script: &mut Script<'_>) -> Range<usize> {
    let start = script.index(length + 1);
    let longest = if script.below(8) > 0 { 8 } else { length };
    start..start + script.index(longest.min(length - start) + 1)
}

fn split(input: &[u8], format: Format, is_lines: bool) -> Vec<Vec<u8>> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | 0x80..);
    match format {
        Format::Script | Format::Message(_) => vec![input.to_vec()],
        Format::Messages(_) => frames(input).map(<[u8]>::to_vec).collect(),
        Format::Text => input
            .chunk_by(|byte, next| match is_lines {
                true => *byte != b'\n',
                false => byte == next || is_word(byte) && is_word(next),
            })
            .map(<[u8]>::to_vec)
            .collect(),
    }
}

fn edit(piece: &mut Vec<u8>, format: Format, script: &mut Script<'_>) {
    let at = script.index(piece.len() + 1);
    match (script.below(8), format) {
        // A field after the others replaces a number, and adds to a list.
        (0..=4, Format::Message(name) | Format::Messages(name)) => {
            piece.extend(schema::field(name, &[], script));
        }
        (0..=3, Format::Text) => *piece = script.choose(&NUMBERS).as_bytes().to_vec(),
        (4, _) => piece.truncate(at),
        (5, _) => piece.insert(at, *script.choose(&EDGES)),
        (kind, _) => {
            if let Some(byte) = piece.get_mut(at) {
                *byte = match kind {
                    6 => *byte ^ 1 << script.below(8),
                    // A length, or a number next to the allowed one.
                    _ => byte.wrapping_add(script.below(9) as u8).wrapping_sub(4),
                };
            }
        }
    }
}

/// Splits an input into frames, each after its length as two bytes.
pub(crate) fn frames(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    iter::from_fn(move || {
        let (length, rest) = data.split_first_chunk()?;
        let (frame, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        data = rest;
        Some(frame)
    })
}

/// Joins frames, each cut to the maximum of its length field.
pub(crate) fn framed(frames: &[Vec<u8>]) -> Vec<u8> {
    let frame = |frame: &Vec<u8>| {
        let length = u16::try_from(frame.len()).unwrap_or(u16::MAX);
        [&length.to_le_bytes()[..], &frame[..usize::from(length)]].concat()
    };
    frames.iter().flat_map(frame).collect()
}
