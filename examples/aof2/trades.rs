// Before: trades in an AOF2 stream, written from a matching loop that must never wait, in calls as its design has them.
use aof2::{Aof, AofConfig, AofError, AofManager, BackpressureKind, FlushConfig, RecordId};
use std::time::Duration;

fn open(manager: &AofManager) -> Result<Aof, AofError> {
    manager.open(AofConfig {
        root_dir: "trades".into(),
        segment_max_bytes: 64 << 20,
        flush: FlushConfig { max_unflushed_bytes: 8 << 20, ..Default::default() },
        ..Default::default()
    })
}

/// Takes a trade without waiting, or says that the journal cannot take one now.
fn offer(aof: &Aof, trade: &[u8]) -> Result<Option<RecordId>, AofError> {
    match aof.append_record(trade) {
        Ok(id) => Ok(Some(id)),
        Err(AofError::WouldBlock(BackpressureKind::Admission | BackpressureKind::Rollover)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Takes a trade that must not be lost: waits for room, and then until it is durable.
async fn settle(aof: &Aof, trade: &[u8]) -> Result<RecordId, AofError> {
    let id = aof.append_record_with_timeout(trade, Duration::from_millis(1500))?;
    aof.flush(id).await?;
    Ok(id)
}

#[tokio::main]
async fn main() -> Result<(), AofError> {
    let manager = AofManager::new(tokio::runtime::Handle::current());
    let aof = open(&manager)?;
    let offered = offer(&aof, b"\x01\x00buy")?;
    let settled = settle(&aof, b"\x02\x00sell").await?;
    println!("{:?} {:?}", offered, aof.read(settled)?.payload());
    aof.seal_current_segment().await
}
