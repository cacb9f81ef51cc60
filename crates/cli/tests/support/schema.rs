//! Validates JSON against `docs/schema/run.schema.json`, by the keywords of JSON Schema that this file uses.

use serde_json::Value;

pub struct Schema(Value);

impl Schema {
    pub fn load() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/run.schema.json");
        Self(serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
    }

    /// Names of the definitions.
    pub fn definitions(&self) -> impl Iterator<Item = &String> {
        self.0["$defs"].as_object().unwrap().keys()
    }

    /// What is wrong with a value of the definition `name`; empty if it is valid.
    pub fn errors(&self, name: &str, value: &Value) -> Vec<String> {
        let definition = self.0["$defs"].get(name).unwrap_or_else(|| panic!("no definition `{name}`"));
        let mut errors = Vec::new();
        self.check(definition, value, name, &mut errors);
        errors
    }

    fn check(&self, schema: &Value, value: &Value, at: &str, errors: &mut Vec<String>) {
        for (keyword, rule) in schema.as_object().unwrap() {
            let is_valid = match keyword.as_str() {
                "$ref" => {
                    let pointer = rule.as_str().unwrap().strip_prefix('#').unwrap();
                    self.check(self.0.pointer(pointer).unwrap(), value, at, errors);
                    true
                }
                "anyOf" => rule.as_array().unwrap().iter().any(|schema| self.is_valid(schema, value)),
                "type" => match rule {
                    Value::Array(names) => names.iter().any(|name| has_type(value, name)),
                    name => has_type(value, name),
                },
                "const" => value == rule,
                "enum" => rule.as_array().unwrap().contains(value),
                "required" => value.as_object().is_none_or(|object| {
                    rule.as_array().unwrap().iter().all(|key| object.contains_key(key.as_str().unwrap()))
                }),
                "items" => {
                    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(rule, item, &format!("{at}[{number}]"), errors);
                    }
                    true
                }
                "properties" => {
                    self.check_properties(schema, value, at, errors);
                    true
                }
                // An object with any keys: `properties` checks the others.
                "additionalProperties" if schema.get("properties").is_none() => {
                    for (key, item) in value.as_object().into_iter().flatten() {
                        self.check(rule, item, &format!("{at}.{key}"), errors);
                    }
                    true
                }
                "additionalProperties" | "patternProperties" | "description" => true,
                other => panic!("keyword `{other}` is not known here"),
            };
            if !is_valid {
                errors.push(format!("{at}: {value} breaks `{keyword}` {rule}"));
            }
        }
    }

    fn check_properties(&self, schema: &Value, value: &Value, at: &str, errors: &mut Vec<String>) {
        for (key, item) in value.as_object().into_iter().flatten() {
            if let Some(property) = schema["properties"].get(key) {
                self.check(property, item, &format!("{at}.{key}"), errors);
            } else if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
                errors.push(format!("{at}: unknown key `{key}`"));
            }
        }
    }

    fn is_valid(&self, schema: &Value, value: &Value) -> bool {
        let mut errors = Vec::new();
        self.check(schema, value, "", &mut errors);
        errors.is_empty()
    }
}

fn has_type(value: &Value, name: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("type `{other}` is not known here"),
    }
}
