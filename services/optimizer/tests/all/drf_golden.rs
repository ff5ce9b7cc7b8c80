//! Every case of the golden file with its trace, and the cases of the DRF paper.

use dormouse_optimizer::drf::{self, User};
use dormouse_optimizer::problem::Misfit;
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};
use serde_json::Value;

fn rational(value: &Value) -> BigRational {
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), ToOwned::to_owned);
    if let Some((whole, fraction)) = text.split_once('.') {
        let digits: BigInt = format!("{whole}{fraction}").parse().expect("digits");
        return BigRational::new(digits, BigInt::from(10).pow(fraction.len() as u32));
    }
    text.parse().expect("a number or a fraction")
}

/// A case with amounts scaled to integers per resource.
struct Case {
    resources: Vec<String>,
    factors: Vec<BigInt>,
    names: Vec<String>,
    totals: Vec<u64>,
    users: Vec<User>,
}

fn read(case: &Value) -> Case {
    // The traces list resources in this order.
    let named = |name: &&&str| case["resources"].get(**name).is_some();
    let resources: Vec<String> = ["cpu", "mem", "gpu"]
        .iter()
        .filter(named)
        .map(|name| (*name).to_owned())
        .collect();
    let users = case["users"].as_array().expect("users");
    let mut factors = vec![BigInt::from(1); resources.len()];
    let mut amounts = Vec::new();
    for (index, resource) in resources.iter().enumerate() {
        let mut column = vec![rational(&case["resources"][resource])];
        for user in users {
            let demand = user["demand"].get(resource);
            column.push(demand.map_or_else(BigRational::zero, rational));
        }
        for amount in &column {
            factors[index] = num_integer::lcm(factors[index].clone(), amount.denom().clone());
        }
        let whole = |amount: &BigRational| (amount * &factors[index]).to_integer().to_u64();
        amounts.push(
            column
                .iter()
                .map(|a| whole(a).expect("fits"))
                .collect::<Vec<_>>(),
        );
    }
    let read_user = |(index, user): (usize, &Value)| User {
        demand: amounts.iter().map(|column| column[index + 1]).collect(),
        weight: user["weight"].as_u64().map_or(1, |weight| weight as u32),
        floor: 0,
        cap: user["cap"].as_u64().map(|cap| cap as u32),
        auxiliary: Vec::new(),
    };
    Case {
        factors,
        names: users
            .iter()
            .map(|u| u["name"].as_str().expect("name").to_owned())
            .collect(),
        totals: amounts.iter().map(|column| column[0]).collect(),
        users: users.iter().enumerate().map(read_user).collect(),
        resources,
    }
}

impl Case {
    fn free(&self, free: &[BigRational]) -> Vec<BigRational> {
        free.iter()
            .zip(&self.factors)
            .map(|(f, factor)| f / factor)
            .collect()
    }

    fn share(&self, index: usize, tasks: u32) -> BigRational {
        let demand = self.users[index].demand.iter().zip(&self.totals);
        demand
            .filter(|(_, total)| **total > 0)
            .map(|(amount, total)| {
                BigRational::new((*amount * u64::from(tasks)).into(), (*total).into())
            })
            .max()
            .unwrap_or_else(BigRational::zero)
    }

    #[track_caller]
    fn compare(
        &self,
        expect: &Value,
        tasks: &[BigRational],
        shares: &[BigRational],
        free: &[BigRational],
    ) {
        for (index, name) in self.names.iter().enumerate() {
            assert_eq!(
                tasks[index],
                rational(&expect["tasks"][name]),
                "tasks of {name}"
            );
            assert_eq!(
                shares[index],
                rational(&expect["share"][name]),
                "share of {name}"
            );
        }
        for (free, resource) in self.free(free).iter().zip(&self.resources) {
            assert_eq!(
                *free,
                rational(&expect["free"][resource]),
                "free {resource}"
            );
        }
    }

    #[track_caller]
    fn compare_offers(&self, expect: &Value, misfit: Misfit) -> drf::Offers {
        let got = drf::offer(&self.totals, &self.users, misfit);
        let whole = |value: u64| BigRational::from_integer(value.into());
        let tasks: Vec<_> = got.tasks.iter().map(|t| whole(u64::from(*t))).collect();
        let shares: Vec<_> = got
            .tasks
            .iter()
            .enumerate()
            .map(|(i, t)| self.share(i, *t))
            .collect();
        let free: Vec<_> = got.free.iter().map(|f| whole(*f)).collect();
        self.compare(expect, &tasks, &shares, &free);
        got
    }

    #[track_caller]
    fn compare_trace(&self, expect: &Value, trace: &[drf::Offer]) {
        let expect = expect.as_array().expect("trace");
        assert_eq!(expect.len(), trace.len());
        for (expect, offer) in expect.iter().zip(trace) {
            assert_eq!(expect["to"].as_str(), Some(self.names[offer.to].as_str()));
            assert_eq!(expect["accepted"].as_bool(), Some(offer.accepted));
            let offered: Vec<_> = offer
                .offered
                .iter()
                .map(|o| BigRational::from_integer((*o).into()))
                .collect();
            let expected: Vec<_> = expect["offered"]
                .as_array()
                .expect("offered")
                .iter()
                .map(rational)
                .collect();
            assert_eq!(self.free(&offered), expected);
            for (index, tasks) in offer.tasks.iter().enumerate() {
                assert_eq!(expect["tasks"][index].as_u64(), Some(u64::from(*tasks)));
                assert_eq!(
                    rational(&expect["shares"][index]),
                    self.share(index, *tasks)
                );
            }
        }
    }

    #[track_caller]
    fn compare_fill(&self, expect: &Value) {
        let got = drf::fill(&self.totals, &self.users);
        let tasks: Vec<_> = (0..self.users.len()).map(|i| got.exact_tasks(i)).collect();
        let shares: Vec<_> = (0..self.users.len()).map(|i| got.exact_share(i)).collect();
        let free: Vec<_> = (0..self.totals.len())
            .map(|k| {
                let used = self
                    .users
                    .iter()
                    .zip(&tasks)
                    .map(|(u, t)| t * BigInt::from(u.demand[k]));
                BigRational::from_integer(self.totals[k].into()) - used.sum::<BigRational>()
            })
            .collect();
        self.compare(expect, &tasks, &shares, &free);
        for (index, share) in shares.iter().enumerate() {
            let near = share.to_f64().expect("finite");
            assert!((got.share(index) - near).abs() < 1e-12);
        }
    }
}

#[test]
fn golden_cases() {
    let text = include_str!("../data/drf-golden.json");
    let golden: Value = serde_json::from_str(text).expect("JSON");
    let cases = golden["cases"].as_array().expect("cases");
    assert_eq!(cases.len(), 8);
    for value in cases {
        let case = read(value);
        let expect = &value["expect"];
        let offers = case.compare_offers(&expect["skip"], Misfit::Skip);
        case.compare_trace(&expect["trace"], &offers.trace);
        case.compare_offers(&expect["stop"], Misfit::Stop);
        case.compare_fill(&expect["fill"]);
    }
}

fn users(demands: &[([u64; 2], u32)]) -> Vec<User> {
    let user = |(demand, weight): &([u64; 2], u32)| User {
        demand: demand.to_vec(),
        weight: *weight,
        ..User::default()
    };
    demands.iter().map(user).collect()
}

#[test]
fn weighted_case_of_the_paper() {
    let pool = [9, 18];
    let users = users(&[([1, 4], 1), ([3, 1], 3)]);
    assert_eq!(drf::offer(&pool, &users, Misfit::Skip).tasks, [3, 2]);
    assert_eq!(drf::offer(&pool, &users, Misfit::Stop).tasks, [2, 2]);
    let filled = drf::fill(&pool, &users);
    assert_eq!(filled.exact_tasks(0), BigRational::new(9.into(), 7.into()));
    assert_eq!(filled.exact_tasks(1), BigRational::new(18.into(), 7.into()));
}

#[test]
fn resource_monotonicity_does_not_hold() {
    let users = users(&[([1, 2], 1), ([2, 1], 1)]);
    let tasks = |pool: [u64; 2]| {
        let filled = drf::fill(&pool, &users);
        [0, 1].map(|i| filled.exact_tasks(i).to_f64().expect("finite"))
    };
    assert_eq!(tasks([42, 42]), [14.0, 14.0]);
    assert_eq!(tasks([63, 42]), [12.0, 18.0]);
}

#[test]
fn users_without_demand_or_without_a_resource_get_nothing() {
    let pool = [10, 0];
    let users = users(&[([0, 0], 1), ([1, 1], 1), ([2, 0], 1)]);
    assert_eq!(drf::offer(&pool, &users, Misfit::Skip).tasks, [0, 0, 5]);
    let filled = drf::fill(&pool, &users);
    assert!(filled.exact_share(0).is_zero() && filled.exact_share(1).is_zero());
    assert_eq!(filled.exact_tasks(2).to_f64(), Some(5.0));
}

#[test]
fn floors_come_first_and_a_floor_beyond_the_cluster_freezes_its_users() {
    let pool = [10];
    let user = |floor, cap| User {
        demand: vec![1],
        weight: 1,
        floor,
        cap: Some(cap),
        auxiliary: Vec::new(),
    };
    let tasks = |users: &[User]| {
        let filled = drf::fill(&pool, users);
        (0..users.len())
            .map(|i| filled.exact_tasks(i).to_f64().expect("finite"))
            .collect::<Vec<_>>()
    };
    assert_eq!(tasks(&[user(6, 9), user(1, 9)]), [6.0, 4.0]);
    assert_eq!(
        tasks(&[user(6, 9), user(5, 9), user(0, 9)]),
        [6.0, 5.0, 0.0]
    );
    assert_eq!(
        tasks(&[user(2, 2), user(1, 3), user(0, 9)]),
        [2.0, 3.0, 5.0]
    );
    assert_eq!(tasks(&[user(1, 32)]), [10.0]);
}
