//! A browser, driven by the W3C's WebDriver protocol through chromedriver.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theme {
    Light,
    Dark,
}

pub fn http(port: u16, head: &str, body: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let request = format!(
        "{head}content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut reader = BufReader::new(stream);
    let mut headers = String::new();
    loop {
        let mut line = String::new();
        let read = reader.read_line(&mut line).expect("a head");
        if read == 0 || line == "\r\n" {
            break;
        }
        headers.push_str(&line.to_lowercase());
    }
    let status = headers.get(9..12).and_then(|it| it.parse().ok());
    let length = headers
        .lines()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let mut bytes = Vec::new();
    match length {
        Some(length) => {
            bytes.resize(length, 0);
            // HEAD and 304 have no body.
            let _ = reader.read_exact(&mut bytes);
        }
        None => drop(reader.read_to_end(&mut bytes)),
    }
    let body = String::from_utf8_lossy(&bytes).into_owned();
    (status.expect("a status"), headers, body)
}

/// Chromedriver takes a free IPv6 port and ends if the same IPv4 port is taken, so it may need a restart.
fn driver() -> Option<(Child, u16)> {
    let mut said = Vec::new();
    for _ in 0..5 {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let lines = BufReader::new(driver.stdout.take().expect("piped")).lines();
        for line in lines.map_while(Result::ok) {
            let port = line.split_once("successfully on port ");
            let port = port.and_then(|(_, port)| port.trim_end_matches('.').parse().ok());
            if let Some(port) = port {
                return Some((driver, port));
            }
            said.push(line);
        }
        let ended = driver.wait().expect("it ends");
        said.push(ended.to_string());
    }
    panic!("chromedriver does not start:\n{}", said.join("\n"));
}

impl Browser {
    pub fn start() -> Option<Self> {
        let (driver, port) = driver()?;
        let mut browser = Self {
            driver,
            port,
            session: String::new(),
        };
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "acceptInsecureCerts": true,
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let answer = browser.call("POST", "/session", &wanted);
        answer["sessionId"]
            .as_str()
            .expect("a session")
            .clone_into(&mut browser.session);
        Some(browser)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = match method {
            "POST" => body.to_string(),
            _ => String::new(),
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\ncontent-type: application/json\r\n",
            self.port
        );
        let (status, _, text) = http(self.port, &head, &body);
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(status, 200, "{method} {path}: {text}");
        answer["value"].clone()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.call("POST", &format!("/session/{}/{path}", self.session), body)
    }

    pub fn open(&self, url: &str) {
        self.post("url", &json!({"url": url}));
    }

    pub fn look(&self, width: u32, height: u32, theme: Theme) {
        self.post("window/rect", &json!({"width": width, "height": height}));
        let theme = match theme {
            Theme::Light => "light",
            Theme::Dark => "dark",
        };
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": theme}]});
        for (cmd, params) in [
            ("Emulation.setDeviceMetricsOverride", metrics),
            ("Emulation.setEmulatedMedia", media),
        ] {
            self.post("goog/cdp/execute", &json!({"cmd": cmd, "params": params}));
        }
    }

    pub fn value(&self, expression: &str) -> Value {
        let script = format!("return {expression}");
        self.post("execute/sync", &json!({"script": script, "args": []}))
    }

    pub fn run(&self, script: &str) {
        self.post("execute/sync", &json!({"script": script, "args": []}));
    }

    #[track_caller]
    pub fn wait(&self, expression: &str) -> Value {
        let script = format!(
            "const done = arguments[0]; const end = Date.now() + {};
             const look = () => {{
               let value; try {{ value = {expression}; }} catch {{ value = null; }}
               if (value) done(value);
               else if (Date.now() > end) done(null);
               else setTimeout(look, 10);
             }}; look();",
            PATIENCE.as_millis() / 2
        );
        let timeouts = json!({"script": u64::try_from(PATIENCE.as_millis()).expect("fits")});
        self.post("timeouts", &timeouts);
        let value = self.post("execute/async", &json!({"script": script, "args": []}));
        if value.is_null() {
            self.picture("failed");
            let text = self.value("document.body.innerText");
            panic!("never: {expression}\n{text}\n{:?}", self.said());
        }
        value
    }

    pub fn press(&self, keys: &str) {
        let code = match keys {
            "{left}" => "\u{e012}",
            "{right}" => "\u{e014}",
            "{pageup}" => "\u{e00e}",
            "{pagedown}" => "\u{e00f}",
            "{home}" => "\u{e011}",
            "{end}" => "\u{e010}",
            "{enter}" => "\u{e007}",
            "{escape}" => "\u{e00c}",
            "{tab}" => "\u{e004}",
            text => text,
        };
        let actions: Vec<Value> = code
            .chars()
            .flat_map(|key| {
                [
                    json!({"type": "keyDown", "value": key}),
                    json!({"type": "keyUp", "value": key}),
                ]
            })
            .collect();
        self.post(
            "actions",
            &json!({"actions": [{"type": "key", "id": "keys", "actions": actions}]}),
        );
    }

    #[track_caller]
    pub fn click(&self, selector: &str) {
        let selector = json!(selector);
        self.wait(&format!("document.querySelector({selector})"));
        self.run(&format!("document.querySelector({selector}).click()"));
    }

    pub fn said(&self) -> Vec<String> {
        let entries = self.post("se/log", &json!({"type": "browser"}));
        let entries = entries.as_array().cloned().unwrap_or_default();
        entries.iter().map(|it| it["message"].to_string()).collect()
    }

    pub fn audit(&self, axe: &str) -> Vec<String> {
        self.run(axe);
        let script = "const done = arguments[0];
            axe.run(document, {resultTypes: ['violations']}).then(
              (it) => done(it.violations.flatMap((v) => v.nodes.slice(0, 3).map((n) => `${v.id}: ${n.html.slice(0, 160)} ${n.failureSummary}`))),
              (error) => done([String(error)]));";
        let found = self.post("execute/async", &json!({"script": script, "args": []}));
        serde_json::from_value(found).expect("texts")
    }

    /// Writes to the folder DORMOUSE_PICTURES.
    pub fn picture(&self, name: &str) {
        let Some(folder) = std::env::var_os("DORMOUSE_PICTURES") else {
            return;
        };
        let shot = self.post(
            "goog/cdp/execute",
            &json!({"cmd": "Page.captureScreenshot", "params": {"format": "png"}}),
        );
        let data = shot["data"].as_str().expect("base64");
        let path = std::path::Path::new(&folder).join(format!("{name}.png.base64"));
        std::fs::write(path, data).expect("written");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let head = format!(
                "DELETE /session/{} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\n",
                self.session, self.port
            );
            let _ = std::panic::catch_unwind(|| http(self.port, &head, ""));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
