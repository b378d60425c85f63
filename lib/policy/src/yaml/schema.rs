//! JSON Schemas of YAML files, for editors: a mistake shows while it is typed, before `plimsoll check` finds it.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// Returns the JSON Schema of a file of the shape `T`, in the draft that most editors know.
pub fn schema_of<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft07().with_transform(RecursiveTransform(strict));
    settings.into_generator().into_root_schema_for::<T>()
}

/// Takes null from the values of optional fields, since the reader refuses it, and the format of numbers.
fn strict(schema: &mut Schema) {
    schema.remove("format");
    for key in ["type", "enum"] {
        if let Some(Value::Array(values)) = schema.get_mut(key) {
            values.retain(|it| it != "null" && !it.is_null());
        }
    }
    if let Some(Value::Array(any)) = schema.get_mut("anyOf") {
        any.retain(|it| it.get("type").is_none_or(|it| it != "null"));
    }
}
