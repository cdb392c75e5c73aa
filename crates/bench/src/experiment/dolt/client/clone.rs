//! The files of a clone: whole, three at a time, again as long as that brings any.

use busload_chunks::FileKind;
use busload_proto::remotesapi::TableFileInfo;
use futures_util::{StreamExt, stream};

use super::{
    counts::Meter,
    failure::{refused, wrong},
    http::Http,
    limits::{CLONE_FILES, CLONE_PASSES},
    rpc::Client,
};
use crate::{
    clock::now_ns, experiment::dolt::store::Store, failures::Failure, table_files::TableFile,
};

/// Downloads every file of the list; how long each took.
pub async fn files(client: &Client, store: &Store) -> Result<Vec<u64>, Failure> {
    let mut parts_ns = vec![None; store.files.len()];
    let mut fruitless = 0;
    loop {
        let listed = listed(client, store).await?;
        let had = parts_ns.iter().flatten().count();
        let missing = parts_ns.iter().enumerate().filter(|(_, part)| part.is_none());
        let missing: Vec<usize> = missing.map(|(file, _)| file).collect();
        let download = |file: usize| {
            let (info, known) = (&listed[file], &store.files[file]);
            async move { (file, whole(client.http(), client.meter(), &info.url, known).await) }
        };
        let mut downloads = stream::iter(missing).map(download).buffer_unordered(CLONE_FILES);
        let mut failed = None;
        while let Some((file, ended)) = downloads.next().await {
            match ended {
                Ok(part_ns) => parts_ns[file] = Some(part_ns),
                Err(wrong @ Failure::Wrong(_)) => return Err(wrong),
                // As in the stock client, one that fails ends those that are under way.
                Err(failure) => {
                    failed = Some(failure);
                    break;
                }
            }
        }
        let Some(failure) = failed else { return Ok(parts_ns.into_iter().flatten().collect()) };
        fruitless = if parts_ns.iter().flatten().count() == had { fruitless + 1 } else { 0 };
        if CLONE_PASSES <= fruitless {
            return Err(failure);
        }
        client.meter().add(|counts| counts.retries += 1);
    }
}

/// Asks for the list of files and sorts it as the store's files.
async fn listed(client: &Client, store: &Store) -> Result<Vec<TableFileInfo>, Failure> {
    let list = client.list().await?;
    if *list.root_hash != store.root.0 || list.table_file_info.len() != store.files.len() {
        let (found, expected) = (list.table_file_info.len(), store.files.len());
        return Err(wrong(
            "ListTableFiles",
            format_args!("{found} files or another root, expected {expected}"),
        ));
    }
    let find = |file: &TableFile| {
        let named = |info: &&TableFileInfo| info.file_id == file.id;
        let info = list.table_file_info.iter().find(named);
        let info =
            info.ok_or_else(|| wrong("ListTableFiles", format_args!("{} is missing", file.id)))?;
        agrees(info, file)?;
        Ok(info.clone())
    };
    store.files.iter().map(find).collect()
}

/// The client names a file after its URL, and counts its chunks.
fn agrees(info: &TableFileInfo, file: &TableFile) -> Result<(), Failure> {
    let path = info.url.split('?').next().unwrap_or_default();
    let is_archive = path.ends_with(".darc");
    if is_archive != (file.kind == FileKind::Archive) || info.num_chunks != file.chunk_count {
        let found =
            format!("{} with {} chunks, expected {}", info.url, info.num_chunks, file.chunk_count);
        return Err(wrong(&file.name, found));
    }
    Ok(())
}

/// Downloads one file; how long it took.
async fn whole(http: &Http, meter: &Meter, url: &str, file: &TableFile) -> Result<u64, Failure> {
    let began_ns = now_ns();
    meter.add(|counts| counts.file_gets += 1);
    let mut answer = http.get(url, None).await?;
    if answer.status != 200 {
        return Err(refused(url, format_args!("status {}", answer.status)));
    }
    if answer.length.is_some_and(|length| length != file.bytes) {
        return Err(wrong(
            url,
            format_args!("a length of {:?}, expected {}", answer.length, file.bytes),
        ));
    }
    let (mut bytes, mut crc) = (0, 0);
    while let Some(data) = answer.data().await? {
        bytes += u64::try_from(data.len()).expect("a length fits in 64 bits");
        crc = crc32c::crc32c_append(crc, &data);
    }
    if (bytes, crc) != (file.bytes, file.crc) {
        return Err(wrong(url, format_args!("{bytes} bytes, not the {} of the file", file.bytes)));
    }
    Ok(now_ns().saturating_sub(began_ns))
}
