//! A terminal in which a test runs the command and presses keys.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::place::Place;

/// A terminal of tmux, which ends with its server.
pub struct Terminal {
    server: String,
}

impl Terminal {
    /// Runs a shell's line in a terminal; `None` without tmux.
    pub fn run(place: &Place, line: &str) -> Option<Terminal> {
        if Command::new("tmux").arg("-V").output().is_err() {
            eprintln!("skipped: tmux is not installed");
            return None;
        }
        static SERVERS: AtomicUsize = AtomicUsize::new(0);
        let number = SERVERS.fetch_add(1, Ordering::SeqCst);
        let terminal = Terminal { server: format!("ferrane-{}-{number}", std::process::id()) };
        let script = format!("{line}; echo \"status $?\"; stty -a | grep -o -- '-\\?icanon'; sleep 600");
        let environment = [
            ("FERRANE", env!("CARGO_BIN_EXE_ferrane").to_string()),
            ("FERRANE_CACHE_DIR", place.path("cache").display().to_string()),
        ];
        let mut command = terminal.command();
        command.args(["-f", "/dev/null", "new-session", "-d", "-x", "130", "-y", "40"]).arg("-c").arg(place.path(""));
        for (name, value) in environment {
            command.arg("-e").arg(format!("{name}={value}"));
        }
        let output = command.args(["sh", "-c", &script]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(terminal)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        command.args(["-L", &self.server]).env_remove("TMUX");
        command
    }

    pub fn screen(&self) -> String {
        let output = self.command().args(["capture-pane", "-p"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn press(&self, key: &str) {
        assert!(self.command().args(["send-keys", key]).status().unwrap().success());
    }

    /// Waits until the screen has these words.
    #[track_caller]
    pub fn wait(&self, words: &str) -> String {
        self.wait_until(words, |screen| screen.contains(words))
    }

    /// Waits for a screen that `is` accepts, and returns it.
    #[track_caller]
    pub fn wait_until(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if is(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "no `{what}` in\n{screen}");
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Presses a key and waits for its effect.
    #[track_caller]
    pub fn key(&self, key: &str, effect: &str) -> String {
        self.press(key);
        self.wait(effect)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.command().arg("kill-server").output();
    }
}
