//! A stand-alone scheduler. Each input line changes one container's terms, in the form of the arguments, and
//! is answered by `ok`. The end of the input stops the scheduler.

use std::io::BufRead;

use anyhow::{Context, Result, bail};
use dormouse_gpu_share::scheduler::{Settings, Terms};
use dormouse_gpu_share::server::{Offer, Part, Server};

fn offer(words: &[&str]) -> Result<Offer> {
    let [name, socket, uuids, request, limit, cap] = words else {
        bail!("a container is NAME SOCKET UUIDS REQUEST LIMIT CAP, not {words:?}");
    };
    let terms = Terms {
        request_milli: request.parse().context("REQUEST in thousandths")?,
        limit_milli: limit.parse().context("LIMIT in thousandths")?,
        weight: request.parse().context("REQUEST in thousandths")?,
    };
    let cap_bytes = match cap.parse::<u64>().context("CAP in bytes")? {
        0 => None,
        bytes => Some(bytes),
    };
    let part = |uuid: &str| Part {
        uuid: uuid.to_owned(),
        terms,
        cap_bytes,
    };
    Ok(Offer {
        name: (*name).to_owned(),
        socket: socket.into(),
        parts: uuids.split(',').map(part).collect(),
    })
}

pub fn run(tenants: &[&str]) -> Result<()> {
    let server = Server::start(Settings::default())?;
    for words in tenants.chunks(6) {
        server.share(&offer(words)?)?;
    }
    println!("ok");
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        server.share(&offer(&words)?)?;
        println!("ok");
    }
    Ok(())
}
