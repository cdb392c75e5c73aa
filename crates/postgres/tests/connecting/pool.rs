//! The pool over real connections, through restarts of the server.

use std::{sync::Arc, time::Duration};

use busload_cluster::{Cluster, StopMode};
use busload_postgres::{
    Error, Settings,
    connect::{Connected, connect},
    pool::{Pool, Session},
};

use crate::servers::{ask, settings};

struct Bare(Connected);

impl Session for Bare {
    type Context = ();

    async fn open(settings: &Arc<Settings>, _: &Arc<()>) -> Result<Self, Error> {
        connect(settings).await.map(Self)
    }

    async fn ended(&self) -> Arc<str> {
        self.0.ended.wait().await
    }

    fn is_over(&self) -> bool {
        self.0.ended.is_over()
    }
}

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let polling = async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), polling).await.expect("in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_connections_come_back_after_a_restart_by_themselves() {
    let cluster = Cluster::builder().start().unwrap();
    let url = format!("{}?connections=3&connect_timeout=1s&application_name=pooled", cluster.url());
    let pool = Pool::<Bare>::start(Arc::new(settings(&url)), Arc::new(()));
    until(async || pool.state().up == 3).await;

    cluster.stop(StopMode::Fast).unwrap();
    let place = format!("127.0.0.1:{}", cluster.port());
    let refused = Error::CannotConnect(
        format!("cannot connect to postgres at {place}: Connection refused").into(),
    );
    // The first attempts may still meet a server that is shutting down, and one connection may hear
    // of it before another.
    until(async || pool.acquire().await.map(drop) == Err(refused.clone())).await;
    assert_eq!(pool.state().up, 0);
    assert_eq!(pool.first_attempt().await, Err(refused));

    cluster.start().unwrap();
    until(async || pool.state().up == 3).await;
    assert_eq!((pool.state().lost, pool.state().last_error), (3, None));
    let lease = pool.acquire().await.unwrap();
    assert_eq!(ask(&lease.0, "SELECT 'back'").await, "back");

    cluster.terminate_backends("pooled").unwrap();
    until(async || pool.state().lost == 6 && pool.state().up == 3).await;
    let other = pool.acquire_other(&lease).await.unwrap();
    assert_eq!(ask(&other.0, "SELECT 'again'").await, "again");
    drop((lease, other));

    pool.close().await;
    let left = || {
        cluster
            .execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pooled'")
            .unwrap()
    };
    until(async || left().trim() == "0").await;
}
