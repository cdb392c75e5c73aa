//! Reload: reads the configuration again, compares it with the running one, and applies what a
//! running server can take over. What it cannot is told, and left as it was.
//!
//! ```text
//!  SIGHUP, CONFIG RELOAD --> thread `reload`: Config::load_again --> changes --> apply
//!                              |                                      |--> log levels, certificate
//!                              |                                      |--> tx: limits, users
//!                              |                                      `--> `tables`: tx, Postgres,
//!                              |                                           chunk stores
//!                              `--> one outcome: log, service manager, reply
//! ```
//!
//! A configuration that could not be started with changes nothing.

mod tables;

use std::{
    fmt::Display,
    sync::{Arc, mpsc},
    thread,
};

use busload_pipeline::{
    reload::{OrderStep, ReloadOutcome},
    tx::{NewLimits, Tx},
};

use crate::{
    chunk_stores::ChunkStores,
    config::{Changes, Config, changes},
    failure::Failure,
    logger,
    service_manager::ServiceManager,
    sources::{Pipeline, PostgresTables},
};

/// Configuration in force, with which a reload compares the new one.
pub struct Reloader {
    /// Configuration that is in force: that of the start, with what was applied since.
    running: Config,
}

/// The running server, to which a reload applies changes.
pub struct Running {
    pub pipeline: Pipeline,
    pub postgres: Arc<PostgresTables>,
    pub chunk_stores: Arc<ChunkStores>,
    /// Most connections that may be allowed.
    pub clients_max_at_start: u32,
}

/// Parts of an outcome.
#[derive(Debug, Default)]
struct Report {
    done: Vec<String>,
    /// Reasons why something was not done.
    refused: Vec<String>,
}

impl Reloader {
    /// Notes the configuration of the start, as it was read.
    pub fn new(config: &Config) -> Self {
        Self { running: config.clone() }
    }

    /// Starts the thread that serves requests for reloads.
    pub fn start(mut self, server: Running, manager: ServiceManager) -> Result<(), Failure> {
        server.pipeline.signals.reloads.serve();
        let served = move || {
            loop {
                let request = server.pipeline.signals.reloads.wait();
                manager.reloading();
                let outcome = self.reload(&server);
                let said = match &outcome {
                    Ok(said) => {
                        log::info!("reload: {said}");
                        said
                    }
                    Err(said) => {
                        log::warn!("reload: {said}");
                        said
                    }
                };
                manager.ready(&format_args!("ready; {said}"));
                server.pipeline.signals.reloads.answer(request, outcome);
            }
        };
        let spawned = thread::Builder::new().name("reload".into()).spawn(served);
        spawned
            .map(drop)
            .map_err(|error| Failure::run(format!("cannot start the thread that reloads: {error}")))
    }

    fn reload(&mut self, server: &Running) -> ReloadOutcome {
        let new = match self.running.load_again() {
            Ok(new) => new,
            Err(failure) => {
                return Err(one_line(&format_args!(
                    "the configuration stays as it was: {failure}"
                )));
            }
        };
        new.warnings.iter().for_each(|warning| log::warn!("{warning}"));
        let found = changes(&self.running, &new);
        let mut report = Report::default();
        self.apply_settings(&found, &new, server, &mut report);
        self.read_certificate(&found, &mut report);
        self.read_users(&found, server, &mut report);
        self.read_tokens(&found, &mut report);
        let mut fixed: Vec<String> = found.fixed.iter().map(ToString::to_string).collect();
        fixed.extend(self.apply_tables(&found.tables, &new, server, &mut report));
        report.needs_restart(fixed);
        report.outcome()
    }

    /// Applies the settings that can be applied, and notes them as those of the running server.
    fn apply_settings(
        &mut self,
        found: &Changes,
        new: &Config,
        server: &Running,
        report: &mut Report,
    ) {
        let (running, settings) = (&mut self.running.settings, &new.settings);
        let mut limits = NewLimits::default();
        let mut applied = Vec::new();
        for &name in &found.applicable {
            match name {
                "log_level" => {
                    logger::set_levels(&new.log_levels);
                    self.running.log_levels = new.log_levels.clone();
                }
                "memory_max" => {
                    running.memory_max = settings.memory_max;
                    limits.memory_max = Some(settings.memory_max);
                }
                // The two were checked together.
                "client_reply_bytes" | "reply_bytes_total" => {
                    running.client_reply_bytes = settings.client_reply_bytes;
                    running.reply_bytes_total = settings.reply_bytes_total;
                    limits.reply_bytes =
                        Some((settings.client_reply_bytes, settings.reply_bytes_total));
                }
                "request_bytes" => {
                    running.request_bytes = settings.request_bytes;
                    limits.request_bytes = Some(settings.request_bytes);
                }
                "maxclients" if settings.clients_max <= server.clients_max_at_start => {
                    running.clients_max = settings.clients_max;
                    limits.clients_max = Some(settings.clients_max);
                }
                "maxclients" => {
                    report.refused.push(format!(
                        "a restart is needed for maxclients above {}, the number of the start",
                        server.clients_max_at_start
                    ));
                    continue;
                }
                _ => unreachable!("every setting that can be applied has an arm"),
            }
            applied.push(name);
        }
        if limits != NewLimits::default() {
            server.change(move |tx| tx.set_limits(limits));
        }
        if !applied.is_empty() {
            report.done.push(format!("changed {}", applied.join(", ")));
        }
    }

    /// Reads the files of the certificate again, if they are still the same ones.
    fn read_certificate(&self, found: &Changes, report: &mut Report) {
        let Some(identity) = &self.running.tls else { return };
        if found.fixed.iter().any(|name| name.starts_with("tls_")) {
            return;
        }
        match identity.reload() {
            Ok(()) => report.done.push(format!(
                "the certificate in {} is used for new connections",
                identity.files().certificate.display()
            )),
            Err(error) => report.refused.push(format!("the certificate stays as it was: {error}")),
        }
    }

    /// Reads the file of tokens again, if it is still the same one.
    fn read_tokens(&self, found: &Changes, report: &mut Report) {
        let Some(tokens) = self.running.front.access.tokens() else { return };
        if found.fixed.iter().any(|name| name.starts_with("token_")) {
            return;
        }
        match tokens.reload() {
            Ok(true) => report.done.push("the tokens are those of their file".to_owned()),
            Ok(false) => report.done.push("answers about tokens are forgotten".to_owned()),
            Err(error) => report.refused.push(format!("the tokens stay as they were: {error}")),
        }
    }

    /// Replaces the users by those of their file, if it is still the same one and its text is not
    /// in force: users that clients have changed in memory stay otherwise.
    fn read_users(&self, found: &Changes, server: &Running, report: &mut Report) {
        let Some(users) = self.running.settings.users.clone() else { return };
        if found.fixed.contains(&"acl_file") {
            return;
        }
        match users.read_changed_file() {
            Ok(None) => {}
            Ok(Some(loaded)) => {
                server.change(move |tx| tx.replace_users(loaded));
                report.done.push("the users are those of their file".to_owned());
            }
            Err(error) => {
                report.refused.push(format!("the users stay as they were: {error}"));
            }
        }
    }
}

impl Running {
    /// Has tx make a change, and waits until it has.
    fn change(&self, change: impl FnOnce(&mut Tx) + Send + 'static) {
        let mut change = Some(change);
        // At a shutdown nothing needs to change any more.
        let _ = self.ask(move |tx| change.take().map(|change| change(tx)).ok_or(OrderStep::Done));
    }

    /// Calls `order` in one turn of tx after the other until it returns a value. Returns none if tx
    /// ends before.
    fn ask<T: Send + 'static>(
        &self,
        mut order: impl FnMut(&mut Tx) -> Result<T, OrderStep> + Send + 'static,
    ) -> Option<T> {
        let (sender, made) = mpsc::channel();
        let put = self.pipeline.signals.orders.put(Box::new(move |tx| match order(tx) {
            Ok(value) => {
                // The thread that reloads waits.
                let _ = sender.send(value);
                OrderStep::Done
            }
            Err(step) => step,
        }));
        assert!(put.is_ok(), "only the thread that reloads orders, and it waits for each order");
        self.pipeline.waker.wake_by_ref();
        made.recv().ok()
    }
}

impl Report {
    fn needs_restart(&mut self, names: Vec<String>) {
        if !names.is_empty() {
            self.refused.push(format!("a restart is needed for {}", names.join(", ")));
        }
    }

    fn outcome(self) -> ReloadOutcome {
        let done = if self.done.is_empty() && self.refused.is_empty() {
            vec!["nothing has changed".to_owned()]
        } else {
            self.done
        };
        let is_complete = self.refused.is_empty();
        let said = one_line(&[self.refused, done].concat().join("; "));
        if is_complete { Ok(said) } else { Err(said) }
    }
}

/// Makes one line of a text, as the log and clients take it.
fn one_line(text: &dyn Display) -> String {
    text.to_string().replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_says_first_what_was_not_done() {
        assert_eq!(Report::default().outcome(), Ok("nothing has changed".into()));
        let mut report = Report { done: vec!["changed maxclients".into()], refused: Vec::new() };
        report.needs_restart(Vec::new());
        assert_eq!(
            Report { done: report.done.clone(), refused: Vec::new() }.outcome(),
            Ok("changed maxclients".into())
        );
        report.needs_restart(vec!["resp".into(), "table db (new)".into()]);
        assert_eq!(
            report.outcome(),
            Err("a restart is needed for resp, table db (new); changed maxclients".into())
        );
        let broken = Report { done: Vec::new(), refused: vec!["two\nlines".into()] };
        assert_eq!(broken.outcome(), Err("two lines".into()));
    }
}
