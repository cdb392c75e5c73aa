//! Changes of a running tx by orders of another thread.

use busload_acl::Loaded;

use super::Tx;
use crate::{limits::JOB_PAUSE, reload::OrderStep, settings::SyncMode};

/// Limits that a reload changes; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewLimits {
    /// Memory of all tables; 0 means no limit.
    pub memory_max: Option<u64>,
    /// Pending reply bytes of one client, and memory of all connections.
    pub reply_bytes: Option<(usize, usize)>,
    /// Largest size of one request in bytes.
    pub request_bytes: Option<usize>,
    /// Number of connections that may be open at once, at most those of the start.
    pub clients_max: Option<u32>,
}

impl Tx {
    /// Runs a turn of the order of another thread, if there is one.
    pub(super) fn run_order(&mut self) {
        let running = self.order.take().map(|(order, _)| order);
        let Some(mut order) = running.or_else(|| self.signals.orders.take()) else { return };
        let due = match order(self) {
            OrderStep::Done => return,
            OrderStep::NextTurn => self.now,
            OrderStep::Later => self.now + JOB_PAUSE,
        };
        self.order = Some((order, due));
    }

    /// Returns the most connections that may be allowed: those of the start, which knows how many
    /// files may be open.
    pub fn clients_max_at_start(&self) -> u32 {
        self.clients_max_at_start
    }

    /// Changes limits, as CONFIG SET does.
    pub fn set_limits(&mut self, limits: NewLimits) {
        let settings = &mut self.settings;
        if let Some(bytes) = limits.memory_max {
            settings.memory_max = bytes;
        }
        if let Some((client, total)) = limits.reply_bytes {
            (settings.client_reply_bytes, settings.reply_bytes_total) = (client, total);
        }
        if let Some(bytes) = limits.request_bytes {
            settings.request_bytes = bytes;
        }
        if let Some(clients) = limits.clients_max {
            assert!(clients <= self.clients_max_at_start, "more files than may be open");
            settings.clients_max = clients;
        }
        self.change_net_limits();
    }

    /// Changes durability and memory limit of a memory table, which is logged before and after or
    /// neither.
    pub fn change_table(&mut self, name: &str, sync: SyncMode, memory_max: Option<u64>) {
        self.catalog.change_memory(name, sync, memory_max);
    }

    /// Replaces all users by those of the file, as ACL LOAD does.
    pub fn replace_users(&mut self, loaded: Loaded) {
        self.users.replace(loaded);
        self.users_changed(None);
    }
}
