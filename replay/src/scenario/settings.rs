//! Settings: one field of a scenario by its dotted path, and sweeps over several values.
//!
//! `policy.theta1=0.1,0.2` gives two scenarios; several settings multiply. A value is JSON, or else a
//! text: `policy.objective.amortise_s=null`, `policy.allocation=drf`.

use std::fmt;

use serde_json::{Map, Value};

use super::ScenarioError;

/// One field and its values.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    text: String,
    path: Vec<String>,
    values: Vec<Value>,
}

impl std::str::FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((path, values)) = text.split_once('=') else {
            return Err(format!(
                "{text:?} is not PATH=VALUE, such as policy.theta1=0.2"
            ));
        };
        let path: Vec<String> = path.split('.').map(|part| part.trim().to_owned()).collect();
        if path.iter().any(String::is_empty) {
            return Err(format!(
                "{text:?} names no field; write PATH=VALUE, such as policy.theta1=0.2"
            ));
        }
        let values = split(values).map(|value| {
            serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()))
        });
        Ok(Self {
            text: text.to_owned(),
            path,
            values: values.collect(),
        })
    }
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// Splits at commas outside brackets and quotes.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let (mut depth, mut quoted) = (0i32, false);
    text.split(move |letter| {
        match letter {
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth -= 1,
            _ => {}
        }
        letter == ',' && depth == 0 && !quoted
    })
    .map(str::trim)
}

/// One combination of the values of all settings.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Combination(Vec<(Setting, Value)>);

impl Combination {
    /// Returns the label within the sweep: the settings with several values.
    #[must_use]
    pub fn label(&self) -> String {
        let swept = self
            .0
            .iter()
            .filter(|(setting, _)| setting.values.len() > 1);
        let parts = swept.map(|(setting, value)| {
            let name = setting.path.last().map_or("", String::as_str);
            match value {
                Value::String(text) => format!("{name}={text}"),
                other => format!("{name}={other}"),
            }
        });
        parts.collect::<Vec<_>>().join(" ")
    }

    /// Returns the paths and the values.
    pub fn values(&self) -> impl Iterator<Item = (&[String], &Value)> {
        let all = self.0.iter();
        all.map(|(setting, value)| (setting.path.as_slice(), value))
    }

    /// Sets the values in a scenario.
    ///
    /// # Errors
    /// A path leads through a value without fields.
    pub fn apply(&self, scenario: &mut Value) -> Result<(), ScenarioError> {
        self.0.iter().try_for_each(|(setting, value)| {
            put(scenario, &setting.path, value).map_err(|what| ScenarioError::Setting {
                setting: setting.text.clone(),
                what,
            })
        })
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut settings = self.0.iter();
        settings
            .try_for_each(|(setting, value)| write!(f, " --set {}={value}", setting.path.join(".")))
    }
}

/// Returns every combination of the settings' values in order.
#[must_use]
pub fn combinations(settings: &[Setting]) -> Vec<Combination> {
    let mut all = vec![Combination::default()];
    for setting in settings {
        let extended = all.iter().flat_map(|combination| {
            setting.values.iter().map(move |value| {
                let mut longer = combination.clone();
                longer.0.push((setting.clone(), value.clone()));
                longer
            })
        });
        all = extended.collect();
    }
    all
}

/// Sets `value` at `path` and creates missing objects. The scenario's reader rejects unknown fields.
pub(crate) fn put(into: &mut Value, path: &[String], value: &Value) -> Result<(), String> {
    let Some((first, rest)) = path.split_first() else {
        *into = value.clone();
        return Ok(());
    };
    match into {
        Value::Object(fields) => {
            let missing = || Value::Object(Map::new());
            put(
                fields.entry(first.clone()).or_insert_with(missing),
                rest,
                value,
            )
        }
        Value::Array(items) => {
            let count = items.len();
            let index = first.parse::<usize>().ok();
            match index.and_then(|index| items.get_mut(index)) {
                Some(item) => put(item, rest, value),
                None => Err(format!(
                    "{first:?} is no index of a list of {count}, counted from 0"
                )),
            }
        }
        _ => Err(format!(
            "there is nothing below {first:?}'s parent: it is a plain value"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn setting(text: &str) -> Setting {
        text.parse().expect("a setting")
    }

    #[test]
    fn settings_multiply_and_reach_any_field() {
        let settings = [
            setting("policy.theta1=0.1,0.2"),
            setting("policy.allocation=dorm,static"),
            setting(r#"policy.objective={"loss":0,"amortise_s":null}"#),
            setting("jobs.0.spec.weight=3"),
        ];
        let all = combinations(&settings);
        let labels: Vec<String> = all.iter().map(Combination::label).collect();
        assert_eq!(
            all[1].to_string(),
            r#" --set policy.theta1=0.1 --set policy.allocation="static" --set policy.objective={"amortise_s":null,"loss":0} --set jobs.0.spec.weight=3"#
        );
        assert_eq!(
            labels,
            [
                "theta1=0.1 allocation=dorm",
                "theta1=0.1 allocation=static",
                "theta1=0.2 allocation=dorm",
                "theta1=0.2 allocation=static"
            ]
        );
        let mut scenario = json!({"jobs": [{"spec": {"weight": 1}}]});
        all[3].apply(&mut scenario).expect("applies");
        assert_eq!(
            scenario,
            json!({
                "jobs": [{"spec": {"weight": 3}}],
                "policy": {"theta1": 0.2, "allocation": "static", "objective": {"loss": 0, "amortise_s": null}}
            })
        );
    }

    #[test]
    fn a_wrong_path_is_named() {
        assert!("theta1".parse::<Setting>().is_err());
        assert!(".x=1".parse::<Setting>().is_err());
        let bad = combinations(&[setting("jobs.7.at_s=1")]);
        let error = bad[0]
            .apply(&mut json!({"jobs": []}))
            .expect_err("no such job");
        assert!(error.to_string().contains("jobs.7.at_s=1"), "{error}");
        let bad = combinations(&[setting("horizon_s.deep=1")]);
        assert!(bad[0].apply(&mut json!({"horizon_s": 1})).is_err());
    }
}
