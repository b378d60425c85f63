//! Well-typed messages of the wire with any values, made from the schema itself, so that a new
//! field is fuzzed as soon as it exists.

use std::sync::LazyLock;

use prost_reflect::prost::Message as _;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, ReflectMessage as _, Value,
};

use crate::script::Script;

static SCHEMA: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto/proto");
    let files = protox::compile(["plimsoll/exchange/v1/exchange.proto"], [folder]).unwrap();
    DescriptorPool::from_file_descriptor_set(files).unwrap()
});

/// Names in generated messages: valid names, used by peers or not, and invalid ones.
const NAMES: [&str; 12] = [
    "checkout", "search", "default", "acme", "zone-a", "zone-b", "junk", "junk-2", "host:100",
    "shop", "", "no name",
];

/// Encodes one random field of a message, except the fields in `without`.
pub(crate) fn field(message: &str, without: &[&str], script: &mut Script<'_>) -> Vec<u8> {
    let name = format!("plimsoll.exchange.v1.{message}");
    let mut message = DynamicMessage::new(SCHEMA.get_message_by_name(&name).unwrap());
    let fields: Vec<FieldDescriptor> = message
        .descriptor()
        .fields()
        .filter(|field| !without.contains(&field.name()))
        .collect();
    let field = script.choose(&fields);
    message.set_field(field, value(field, script));
    message.encode_to_vec()
}

fn value(field: &FieldDescriptor, script: &mut Script<'_>) -> Value {
    if field.is_list() {
        let count = script.below(5);
        Value::List((0..count).map(|_| single(field.kind(), script)).collect())
    } else {
        single(field.kind(), script)
    }
}

fn single(kind: Kind, script: &mut Script<'_>) -> Value {
    match kind {
        Kind::Bool => Value::Bool(script.below(2) == 1),
        Kind::Uint32 => Value::U32(script.number() as u32),
        Kind::Uint64 => Value::U64(script.number()),
        Kind::Fixed64 => Value::U64(script.draw()),
        Kind::String => Value::String((*script.choose(&NAMES)).to_owned()),
        Kind::Bytes => {
            // An instance of no honest process.
            let instance = 100 + u128::from(script.below(4));
            Value::Bytes(instance.to_be_bytes().to_vec().into())
        }
        Kind::Enum(_) => Value::EnumNumber(script.below(5) as i32),
        Kind::Message(descriptor) => {
            let mut message = DynamicMessage::new(descriptor.clone());
            // Every field in turn, since many are required.
            for field in descriptor.fields() {
                if script.below(8) > 0 {
                    message.set_field(&field, value(&field, script));
                }
            }
            Value::Message(message)
        }
        other => panic!("the schema has a kind without values here: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_of_field_has_values() {
        for message in ["Report", "Directives"] {
            let mut tags = BTreeSet::new();
            for byte in 1..=u8::MAX {
                let bytes = field(message, &["epoch"], &mut Script(&[byte; 2_000]));
                tags.extend(bytes.first().copied());
            }
            assert!(tags.len() > 15, "{message}: {tags:?}");
        }
    }
}
