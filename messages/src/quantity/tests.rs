//! Amounts: parsing with reasons, rendering, and sums.

use super::*;

#[test]
fn reads_what_people_write() {
    assert_eq!(Resource::Cpu.parse("2"), Ok(2000));
    assert_eq!(Resource::Cpu.parse("500m"), Ok(500));
    assert_eq!(Resource::Gpu.parse("0.25"), Ok(250));
    assert_eq!(Resource::Memory.parse("8Gi"), Ok(8 << 30));
    assert_eq!(Resource::Memory.parse("1.5Gi"), Ok(3 << 29));
    assert_eq!(Resource::Memory.parse("1G"), Ok(1_000_000_000));
}

#[test]
fn refuses_with_the_reason() {
    for (resource, text) in [
        (Resource::Cpu, "-1"),
        (Resource::Cpu, "0.0001"),
        (Resource::Cpu, "two"),
        (Resource::Cpu, ""),
        (Resource::Cpu, "8Gi"),
        (Resource::Memory, "8Gb"),
        (Resource::Memory, "99999999999Ti"),
    ] {
        assert!(resource.parse(text).is_err(), "{resource:?} {text}");
    }
}

#[test]
fn a_unit_of_elsewhere_is_said_in_ours() {
    for (resource, text, meant) in [
        (
            "memory",
            "4GB",
            "did you mean 4Gi (of 1024) or 4G (of 1000)?",
        ),
        (
            "memory",
            "512mb",
            "did you mean 512Mi (of 1024) or 512M (of 1000)?",
        ),
        ("memory", "1.5 GiB", "did you mean 1.5Gi?"),
        ("memory", "4 bananas", "write bytes or Ki"),
        ("mem", "4Gi", "did you mean memory?"),
        ("cpu", "4Gi", "write 2, 0.5 or 500m"),
    ] {
        let resource = Resource::from_name(resource).expect("a name");
        let error = resource.parse(text).expect_err(text).to_string();
        assert!(error.contains(meant), "{error}");
    }
}

#[test]
fn display_reads_back() {
    for amount in [0, 1, 500, 1000, 1 << 20, 3 << 29, 12345] {
        for resource in [Resource::Cpu, Resource::Memory] {
            assert_eq!(resource.parse(&resource.display(amount)), Ok(amount));
        }
    }
}

#[test]
fn fits_and_counts() {
    let demand: Amounts = "cpu=2,memory=8Gi".parse().expect("valid");
    let room: Amounts = "cpu=12,memory=20Gi".parse().expect("valid");
    assert_eq!(demand.times_in(&room), 2);
    assert_eq!(demand.first_short(&room, 3), Some(&Resource::Memory));
    assert_eq!(demand.to_string(), "cpu=2,memory=8Gi");
}

#[test]
fn a_field_form_is_held_to_the_same_bounds() {
    let parse = |entries: &[(&str, &str)]| {
        let written: Vec<_> = entries
            .iter()
            .map(|(name, text)| (*name, Written((*text).to_owned())))
            .collect();
        Amounts::parse(written.iter().map(|(name, text)| (*name, text)))
    };
    assert!(parse(&[("cpu_milli", "8000")]).is_ok());
    assert!(parse(&[("cpu_milli", "18446744073709551615")]).is_err());
    assert!(parse(&[("memory_milli", "8000")]).is_err());
    assert!(parse(&[("cpu", "2"), ("cpu_milli", "2000")]).is_err());
}
