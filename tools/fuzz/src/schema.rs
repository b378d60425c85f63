//! Well-typed messages of the wire with any values, made from the schema itself, so that a new
//! field is fuzzed as soon as it exists.

use std::collections::BTreeMap;
use std::sync::LazyLock;

const SCHEMA: &str = include_str!("../../../proto/proto/plimsoll/exchange/v1/exchange.proto");
/// Names in generated messages: valid names, used by peers or not, and invalid ones.
const NAMES: [&str; 12] = [
    "checkout", "search", "default", "acme", "zone-a", "zone-b", "junk", "junk-2", "host:100",
    "shop", "", "no name",
];
const REPEATED_MAX: u64 = 4;

static MESSAGES: LazyLock<BTreeMap<&str, Vec<Field>>> = LazyLock::new(|| parse(SCHEMA));

/// Source of values: random, or bytes of an input.
pub trait Draw {
    /// Returns any number.
    fn draw(&mut self) -> u64;

    /// Returns a number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }
}

impl Draw for fastrand::Rng {
    fn draw(&mut self) -> u64 {
        self.u64(..)
    }
}

#[derive(Clone, Debug)]
struct Field {
    name: &'static str,
    number: u64,
    kind: Kind,
    is_repeated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Varint,
    Fixed64,
    Text,
    Bytes,
    Named(&'static str),
}

/// Encodes one random field of a message, except the fields in `without`.
#[must_use]
pub fn field(message: &str, without: &[&str], draw: &mut impl Draw) -> Vec<u8> {
    let fields: Vec<&Field> = fields(message)
        .iter()
        .filter(|field| !without.contains(&field.name))
        .collect();
    let mut bytes = Vec::new();
    if let Some(field) = fields.get(draw.below(fields.len().max(1) as u64) as usize) {
        encode(field, draw, &mut bytes);
    }
    bytes
}

fn fields(message: &str) -> &'static [Field] {
    MESSAGES.get(message).map_or(&[], Vec::as_slice)
}

fn encode(field: &Field, draw: &mut impl Draw, into: &mut Vec<u8>) {
    let count = if field.is_repeated {
        draw.below(REPEATED_MAX + 1)
    } else {
        1
    };
    if field.is_repeated && field.kind == Kind::Varint {
        let mut packed = Vec::new();
        (0..count).for_each(|_| varint(number(draw), &mut packed));
        return delimited(field.number, &packed, into);
    }
    for _ in 0..count {
        match field.kind {
            Kind::Varint => {
                varint(field.number << 3, into);
                varint(number(draw), into);
            }
            Kind::Fixed64 => {
                varint(field.number << 3 | 1, into);
                into.extend(draw.draw().to_le_bytes());
            }
            Kind::Text => delimited(
                field.number,
                NAMES[draw.below(NAMES.len() as u64) as usize].as_bytes(),
                into,
            ),
            Kind::Bytes => {
                // An instance of no honest process.
                let instance = 100 + u128::from(draw.below(4));
                delimited(field.number, &instance.to_be_bytes(), into);
            }
            Kind::Named(name) if MESSAGES.contains_key(name) => {
                let mut inner = Vec::new();
                // Every field in turn, since many are required.
                for field in fields(name) {
                    if draw.below(8) > 0 {
                        encode(field, draw, &mut inner);
                    }
                }
                delimited(field.number, &inner, into);
            }
            Kind::Named(_) => {
                varint(field.number << 3, into);
                varint(draw.below(5), into);
            }
        }
    }
}

/// Returns a number that is small, at an edge, or of any size.
pub fn number(draw: &mut impl Draw) -> u64 {
    match draw.below(8) {
        0 => 0,
        1..=3 => draw.below(8),
        4 => 1 << draw.below(64),
        5 => (1 << draw.below(64)) - 1,
        6 => u64::MAX - draw.below(3),
        _ => {
            let shift = draw.below(64);
            draw.draw() >> shift
        }
    }
}

fn delimited(number: u64, bytes: &[u8], into: &mut Vec<u8>) {
    varint(number << 3 | 2, into);
    varint(bytes.len() as u64, into);
    into.extend(bytes);
}

/// Writes a number as protobuf does.
pub fn varint(mut value: u64, into: &mut Vec<u8>) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

fn parse(schema: &'static str) -> BTreeMap<&'static str, Vec<Field>> {
    let mut messages: BTreeMap<&str, Vec<Field>> = BTreeMap::new();
    let mut current = None;
    for line in schema.lines() {
        let line = line.split("//").next().unwrap_or_default();
        let words: Vec<&str> = line
            .split([' ', ';'])
            .filter(|word| !word.is_empty())
            .collect();
        match words[..] {
            ["message", name, ..] => current = Some(messages.entry(name).or_default()),
            ["enum" | "service", ..] => current = None,
            ["reserved", ..] => {}
            [.., kind, name, "=", number] => {
                let (Some(fields), Ok(number)) = (&mut current, number.parse()) else {
                    continue;
                };
                let kind = match kind {
                    "string" => Kind::Text,
                    "bytes" => Kind::Bytes,
                    "fixed64" => Kind::Fixed64,
                    "uint32" | "uint64" | "bool" => Kind::Varint,
                    named => Kind::Named(named),
                };
                fields.push(Field {
                    name,
                    number,
                    kind,
                    is_repeated: words[0] == "repeated",
                });
            }
            _ => {}
        }
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_proto::wire;
    use prost::Message;

    #[test]
    fn every_field_of_the_schema_decodes() {
        let mut rng = fastrand::Rng::with_seed(1);
        for (message, decode) in [
            (
                "Report",
                (|bytes| wire::Report::decode(bytes).map(drop)) as fn(&[u8]) -> Result<(), _>,
            ),
            ("Directives", |bytes| {
                wire::Directives::decode(bytes).map(drop)
            }),
        ] {
            assert!(fields(message).len() > 15, "{message}");
            for _ in 0..2_000 {
                let bytes = field(message, &[], &mut rng);
                assert_eq!(decode(&bytes), Ok(()), "{message} {bytes:x?}");
            }
        }
    }

    #[test]
    fn fields_can_be_left_out() {
        let mut rng = fastrand::Rng::with_seed(1);
        let epochs = (0..2_000).filter(|_| {
            let bytes = field("Report", &["epoch"], &mut rng);
            wire::Report::decode(bytes.as_slice())
                .unwrap()
                .epoch
                .is_some()
        });
        assert_eq!(epochs.count(), 0);
    }
}
