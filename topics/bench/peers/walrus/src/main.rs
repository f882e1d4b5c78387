//! What walrus does, one workload a run: WALRUS_DATA_DIR=DIR walrus_load WORKLOAD SIZE COUNT SECONDS.
//!
//! batch: batches of COUNT entries with NoFsync, with which walrus still syncs each batch. one: single entries, a sync
//! each. read: entries read by batches of at most a MiB, the position persisted every COUNT reads, after enough were
//! written.
//! Prints {"records": ..., "seconds": ...}.

use std::time::{Duration, Instant};
use walrus_rust::{FsyncSchedule, ReadConsistency, Walrus};

const READ_BYTES: usize = 1 << 20;
const WRITTEN: usize = 400_000;

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize| arguments[at].parse::<usize>().expect("a number");
    let (size, count, seconds) = (number(2), number(3), arguments[4].parse::<f64>().expect("seconds"));
    let payload = vec![0xA5u8; size];
    let batch: Vec<&[u8]> = vec![payload.as_slice(); count];
    let schedule = if arguments[1] == "one" { FsyncSchedule::SyncEach } else { FsyncSchedule::NoFsync };
    let consistency = ReadConsistency::AtLeastOnce { persist_every: 100 };
    let wal = Walrus::with_consistency_and_schedule(consistency, schedule)?;
    if arguments[1] == "read" {
        for _ in 0..WRITTEN / count {
            wal.batch_append_for_topic("t", &batch)?;
        }
    }
    let limit = Duration::from_secs_f64(seconds);
    let begun = Instant::now();
    let mut records = 0;
    while begun.elapsed() < limit {
        records += match arguments[1].as_str() {
            "batch" => wal.batch_append_for_topic("t", &batch).map(|_| count)?,
            "one" => wal.append_for_topic("t", &payload).map(|_| 1)?,
            "read" => match wal.batch_read_for_topic("t", READ_BYTES, true)?.len() {
                0 => break,
                read => read,
            },
            other => panic!("no workload {other}"),
        };
    }
    println!("{{\"records\": {records}, \"seconds\": {}}}", begun.elapsed().as_secs_f64());
    Ok(())
}
