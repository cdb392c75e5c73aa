//! A Chromium without a window, driven through its DevTools protocol over a pipe: messages are
//! JSON, each ended by a zero byte, read from file descriptor 3 and written to 4
//! (`--remote-debugging-pipe`). It ends when the pipe is closed.

use std::{
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::TIMEOUT;

/// Programs of Chromium, in the order in which they are tried.
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// Gives the pipe its numbers, which are those of the standard streams here.
const PIPE: &str = "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>&2";
/// Directory for pictures, for whoever wants to look at the page.
const PICTURES: &str = "BUSLOAD_PICTURES";

/// A browser with one page.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    last_id: u64,
    session: Option<String>,
    /// Number of pages that were loaded.
    loads: u64,
    /// Errors of scripts, of the policy and of loading.
    errors: Vec<String>,
    _profile: TempDir,
}

/// Size of the page, and how it is shown.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    pub width: u32,
    pub height: u32,
    pub is_dark: bool,
}

pub const DESKTOP: Screen = Screen { width: 1280, height: 900, is_dark: false };
pub const DARK: Screen = Screen { is_dark: true, ..DESKTOP };
pub const PHONE: Screen = Screen { width: 360, height: 780, is_dark: false };

impl Browser {
    /// Starts a browser; none where there is no Chromium. `cargo xtask test` installs it.
    pub fn start() -> Option<Self> {
        let has = |program: &&str| {
            let version = Command::new(program).arg("--version").output();
            version.is_ok_and(|output| output.status.success())
        };
        let Some(program) = PROGRAMS.into_iter().find(has) else {
            println!("SKIPPED: there is no Chromium");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", PIPE, program, "--headless=new", "--remote-debugging-pipe"])
            // Tests run as root, in containers with little shared memory and without a GPU.
            .args(["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"])
            .args(["--no-first-run", "--disable-background-networking", "about:blank"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).split(0);
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || {
            let mut parsed = output.map_while(Result::ok).map(|text| serde_json::from_slice(&text));
            parsed.try_for_each(|message| sender.send(message.unwrap()))
        });
        let input = child.stdin.take().unwrap();
        let (errors, session) = (Vec::new(), None);
        let (last_id, loads) = (0, 0);
        let mut browser =
            Self { child, input, messages, last_id, session, loads, errors, _profile: profile };
        let page = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached = browser
            .call("Target.attachToTarget", json!({"targetId": page["targetId"], "flatten": true}));
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Runtime", "Log", "Page"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Calls a method of the protocol and waits for its result.
    #[track_caller]
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.input.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let answer = self.next_message();
            if answer["id"] == self.last_id {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    #[track_caller]
    fn next_message(&mut self) -> Value {
        let message = self.messages.recv_timeout(TIMEOUT).expect("the browser answers");
        let about = &message["params"];
        let is_error = match message["method"].as_str() {
            Some("Page.loadEventFired") => {
                self.loads += 1;
                false
            }
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => about["type"] == "error",
            Some("Log.entryAdded") => about["entry"]["level"] == "error",
            _ => false,
        };
        if is_error {
            self.errors.push(about.to_string());
        }
        message
    }

    /// Opens a page and waits until it is loaded.
    #[track_caller]
    pub fn open(&mut self, url: &str) {
        self.load("Page.navigate", json!({"url": url}));
    }

    /// Loads the page again.
    #[track_caller]
    pub fn open_again(&mut self) {
        self.load("Page.reload", json!({}));
    }

    #[track_caller]
    fn load(&mut self, method: &str, parameters: Value) {
        let before = self.loads;
        self.call(method, parameters);
        while self.loads == before {
            self.next_message();
        }
    }

    /// Opens the dashboard of a server and waits until it shows an answer.
    #[track_caller]
    pub fn open_dashboard(&mut self, http: SocketAddr) {
        self.open(&format!("http://{http}/"));
        self.until("document.documentElement.dataset.uptime !== undefined");
    }

    /// Returns the value of an expression, or of what its promise gives.
    #[track_caller]
    pub fn value(&mut self, expression: &str) -> Value {
        let parameters =
            json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let result = self.call("Runtime.evaluate", parameters);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Returns the number in an element's `data-value`.
    #[track_caller]
    pub fn number(&mut self, id: &str) -> f64 {
        let text = self.value(&format!("document.getElementById('{id}').dataset.value"));
        text.as_str().unwrap_or_else(|| panic!("no number in {id}: {text}")).parse().unwrap()
    }

    /// Waits until a condition holds, which is asked whenever something on the page has changed.
    #[track_caller]
    pub fn until(&mut self, condition: &str) {
        let millis = TIMEOUT.as_millis() / 2;
        let script = format!(
            "new Promise((resolve) => {{
                const seen = () => Boolean({condition});
                const end = (held) => {{ observer.disconnect(); resolve(held); }};
                const observer = new MutationObserver(() => {{ if (seen()) end(true); }});
                const all = {{attributes: true, childList: true, characterData: true}};
                observer.observe(document.documentElement, {{...all, subtree: true}});
                setTimeout(() => end(seen()), {millis});
                if (seen()) end(true);
            }})"
        );
        if self.value(&script) != true {
            let page = self.value("document.body.innerText");
            panic!("not in time: {condition}\n{}\n{:?}", page.as_str().unwrap(), self.errors);
        }
    }

    /// Waits until the page shows an answer that the server gave later than now.
    #[track_caller]
    pub fn until_next_answer(&mut self) {
        let now = self.value("Number(document.documentElement.dataset.uptime)");
        self.until(&format!("{now} < Number(document.documentElement.dataset.uptime)"));
    }

    /// Shows the dashboard on another screen, and waits until it is drawn for it.
    #[track_caller]
    pub fn show_on(&mut self, screen: Screen) {
        self.change_screen(screen);
        self.until_next_answer();
    }

    /// Shows any page on another screen. What is asked of it from then on is measured there.
    #[track_caller]
    pub fn change_screen(&mut self, screen: Screen) {
        let Screen { width, height, is_dark } = screen;
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700,
        });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Presses keys, one after the other: names of keys as `KeyboardEvent.key` has them.
    #[track_caller]
    pub fn press(&mut self, keys: &[&str]) {
        for key in keys {
            let code = match *key {
                "Tab" => 9,
                "ArrowLeft" => 37,
                "ArrowRight" => 39,
                key => panic!("no code for {key}"),
            };
            for kind in ["rawKeyDown", "keyUp"] {
                let event =
                    json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
                self.call("Input.dispatchKeyEvent", event);
            }
        }
    }

    /// Writes a picture of the whole page, if somebody wants to look at it.
    pub fn picture(&mut self, name: &str) {
        let Some(directory) = std::env::var_os(PICTURES) else { return };
        let whole = json!({"format": "png", "captureBeyondViewport": true});
        let picture = self.call("Page.captureScreenshot", whole);
        let decoded = base64(picture["data"].as_str().unwrap());
        let path = std::path::Path::new(&directory).join(format!("{name}.png"));
        std::fs::write(path, decoded).unwrap();
    }

    /// Returns the errors so far, and forgets them.
    pub fn errors(&mut self) -> Vec<String> {
        // Events that came before this answer are read with it.
        self.value("0");
        std::mem::take(&mut self.errors)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends its processes, which use the profile, and closes the pipe.
        let close = json!({"id": self.last_id + 1, "method": "Browser.close"});
        let asked = self.input.write_all(format!("{close}\0").as_bytes());
        while asked.is_ok() && self.messages.recv_timeout(TIMEOUT).is_ok() {}
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Decodes base64 (RFC 4648) without white space.
fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut decoded = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.bytes().filter(|&byte| byte != b'=') {
        let digit = DIGITS.iter().position(|&digit| digit == byte).unwrap();
        bits = bits << 6 | u32::try_from(digit).unwrap();
        count += 6;
        if 8 <= count {
            count -= 8;
            decoded.push((bits >> count) as u8);
        }
    }
    decoded
}
