//! The task that moves one connection's bytes.

use std::{future::poll_fn, sync::Arc};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::timeout,
};
use tokio_postgres::{AsyncMessage, Connection, Socket};

use crate::{cause::describe, limits::TERMINATE_TIMEOUT};

/// Moves the bytes until the connection ends, then reports why.
pub(super) struct Driver {
    pub(super) table: String,
    pub(super) host: String,
    pub(super) ended: watch::Sender<Option<Arc<str>>>,
}

impl Driver {
    /// Drives the connection to its end. Once no receiver of the end is left, nobody can use the
    /// connection either: a server that does not answer the Terminate message must not keep its
    /// socket.
    pub(super) async fn run<T>(self, mut connection: Connection<Socket, T>)
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let cause = tokio::select! {
            cause = self.drive(&mut connection) => cause,
            () = self.ended.closed() => {
                let farewell = timeout(TERMINATE_TIMEOUT, self.drive(&mut connection)).await;
                farewell.unwrap_or_else(|_| "nobody needs it".to_owned())
            }
        };
        log::debug!("table {}: connection to {} ended: {cause}", self.table, self.host);
        let text = format!("connection to postgres at {} lost: {cause}", self.host);
        self.ended.send_replace(Some(text.into()));
    }

    async fn drive<T>(&self, connection: &mut Connection<Socket, T>) -> String
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        loop {
            match poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notice(notice))) => {
                    // Its message may show values of rows.
                    let (severity, code) = (notice.severity(), notice.code().code());
                    log::debug!("table {}: {} says {severity} {code}", self.table, self.host);
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return describe(&error),
                None => return "it was closed".to_owned(),
            }
        }
    }
}
