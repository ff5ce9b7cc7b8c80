//! Suggests the nearest known name, only for messages to people.

/// Other systems' names.
const RESOURCES: [(&str, &str); 12] = [
    ("cpus", "cpu"),
    ("core", "cpu"),
    ("cores", "cpu"),
    ("vcpu", "cpu"),
    ("vcpus", "cpu"),
    ("processors", "cpu"),
    ("gpus", "gpu"),
    ("cuda", "gpu"),
    ("mem", "memory"),
    ("ram", "memory"),
    ("memory-mb", "memory"),
    ("mib", "memory"),
];

/// Other systems' names.
const FIELDS: [(&str, &str); 36] = [
    ("account", "tenant"),
    ("after", "depends_on"),
    ("args", "command: {start: [python3, train.py]}"),
    ("array", "tasks: {count: 100, concurrency: 8}"),
    ("cmd", "command: {start: [python3, train.py]}"),
    ("cpu", "demand: {cpu: 1}"),
    ("cpus", "demand: {cpu: 1}"),
    ("dependencies", "depends_on"),
    ("dependency", "depends_on"),
    ("entrypoint", "command: {start: [python3, train.py]}"),
    ("environment", "env"),
    ("features", "constraints: {zone: a}"),
    ("gpu", "demand: {gpu: 1}"),
    ("gpus", "demand: {gpu: 1}"),
    ("mem", "demand: {memory: 1Gi}"),
    ("memory", "demand: {memory: 1Gi}"),
    ("namespace", "tenant"),
    ("needs", "depends_on"),
    ("node_selector", "constraints: {zone: a}"),
    ("nodes", "containers: {min: 1, max: 4}"),
    ("nodeSelector", "constraints: {zone: a}"),
    ("partition", "tenant"),
    ("qos", "priority_class"),
    ("replicas", "containers: {min: 1, max: 4}"),
    ("require", "constraints: {zone: a}"),
    ("requires", "constraints: {zone: a}"),
    ("resources", "demand: {cpu: 1, memory: 1Gi}"),
    ("restarts", "retries"),
    ("run", "command: {start: [python3, train.py]}"),
    ("script", "command: {start: [python3, train.py]}"),
    ("time", "time_limit_s"),
    ("time_limit", "time_limit_s"),
    ("timeout", "time_limit_s"),
    ("volumes", "mounts"),
    ("workers", "containers: {min: 1, max: 4}"),
    ("working_dir", "workdir"),
];

/// Returns the nearest name with at most one edit in four letters.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let distances = known.into_iter().filter_map(|name| {
        let most = (word.chars().count().max(name.chars().count()) + 1) / 4;
        let distance = strsim::osa_distance(&word, &name.to_lowercase());
        (distance <= most).then_some((distance, name))
    });
    distances.min().map(|(_, name)| name)
}

/// Returns the resource that `word` means.
#[must_use]
pub fn resource<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let meant = RESOURCES.iter().find(|(name, _)| *name == lower);
    match meant {
        Some((_, name)) => known.into_iter().find(|it| it == name),
        // Meant literally.
        None if ["cpu", "gpu", "memory"].contains(&lower.as_str()) => None,
        None => nearest(word, known),
    }
}

/// Ends an error message: `; did you mean gpu?`.
#[must_use]
pub fn hint(meant: Option<&str>) -> String {
    meant.map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

/// Suggests a name from a deserializer's error, which lists those known.
#[must_use]
pub fn of_error(error: &str) -> Option<String> {
    let (is_field, rest) = match error.split_once("unknown field `") {
        Some((_, rest)) => (true, rest),
        None => (false, error.split_once("unknown variant `")?.1),
    };
    let (word, rest) = rest.split_once('`')?;
    let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
    let is_of_a_job = known.contains(&"demand");
    let elsewhere = FIELDS.iter().find(|(name, _)| *name == word);
    match elsewhere.filter(|_| is_field && is_of_a_job) {
        Some((_, here)) => Some((*here).to_owned()),
        None => nearest(word, known).map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_found_and_what_is_far_is_not() {
        let known = ["demand", "depends_on", "command", "containers"];
        for (word, expected) in [
            ("demnd", Some("demand")),
            ("Demand", Some("demand")),
            ("comand", Some("command")),
            ("contianers", Some("containers")),
            ("colour", None),
            ("d", None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
    }

    #[test]
    fn resources_have_other_names_elsewhere() {
        let known = ["cpu", "gpu", "memory"];
        for (word, expected) in [
            ("gpus", Some("gpu")),
            ("mem", Some("memory")),
            ("cores", Some("cpu")),
            ("memmory", Some("memory")),
            ("licence", None),
        ] {
            assert_eq!(resource(word, known), expected, "{word}");
        }
        assert_eq!(resource("gpus", ["cpu", "memory"]), None);
        assert_eq!(resource("gpu", ["cpu", "memory"]), None);
    }

    #[test]
    fn an_error_says_itself_what_was_expected() {
        for (error, expected) in [
            (
                "unknown field `gpus`, expected one of `name`, `demand`",
                Some("demand: {gpu: 1}"),
            ),
            (
                "unknown field `after`, expected one of `name`, `demand`",
                Some("depends_on"),
            ),
            (
                "unknown field `require`, expected one of `name`, `demand`",
                Some("constraints: {zone: a}"),
            ),
            ("unknown field `mim`, expected `min` or `max`", Some("min")),
            (
                "unknown variant `trainig`, expected one of `training`, `batch`",
                Some("training"),
            ),
            ("unknown field `time`, expected `min` or `max`", None),
            ("missing field `min`", None),
        ] {
            assert_eq!(of_error(error).as_deref(), expected, "{error}");
        }
    }
}
