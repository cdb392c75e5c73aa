//! A batcher over plain functions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use busload_batch::{BatchError, Batcher, BatcherSettings, Functions};

#[tokio::test]
async fn a_function_that_loads_needs_no_trait() {
    let load = |keys: Vec<u32>| async move {
        keys.into_iter().map(|key| (key < 10).then_some(2 * key)).collect::<Vec<_>>()
    };
    let batcher = Batcher::from_load(load, BatcherSettings::default()).unwrap();
    assert_eq!(batcher.load_many([2, 12]).await, [Ok(Some(4)), Ok(None)]);
}

#[tokio::test]
async fn two_functions_load_and_store_and_the_type_has_a_name() {
    struct Users {
        by_id: Batcher<Functions<u32, String, &'static str>>,
    }
    let table = Arc::new(Mutex::new(HashMap::new()));
    let read = Arc::clone(&table);
    let load = move |ids: Vec<u32>| {
        let table = read.lock().unwrap();
        let users = ids.iter().map(|id| table.get(id).cloned()).collect::<Vec<_>>();
        async move { if ids.contains(&0) { Err("there is no user 0") } else { Ok(users) } }
    };
    let store = move |users: Vec<(u32, String)>| {
        table.lock().unwrap().extend(users);
        async {}
    };
    let users =
        Users { by_id: Batcher::from_functions(load, store, BatcherSettings::default()).unwrap() };
    users.by_id.store(1, "Ada".to_string()).await.unwrap();
    assert_eq!(users.by_id.load(1).await, Ok(Some("Ada".to_string())));
    assert_eq!(users.by_id.load(2).await, Ok(None));
    assert_eq!(users.by_id.load(0).await, Err(BatchError::Failed("there is no user 0")));
}

#[tokio::test]
async fn a_function_that_fails_to_store_fails_its_callers() {
    let load = |keys: Vec<u32>| async move { Ok(vec![Some(()); keys.len()]) };
    let store = |_| async { Err("read only") };
    let batcher = Batcher::from_functions(load, store, BatcherSettings::default()).unwrap();
    assert_eq!(batcher.store(1, ()).await, Err(BatchError::Failed("read only")));
}
