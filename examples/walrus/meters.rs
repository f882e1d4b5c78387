// Before: readings of meters in a Walrus log. One thread appends, another sums up, and both go on after a restart.
use std::collections::HashMap;
use walrus_rust::{FsyncSchedule, ReadConsistency, Walrus};

fn open() -> std::io::Result<Walrus> {
    Walrus::with_consistency_and_schedule_for_key(
        "meters",
        ReadConsistency::AtLeastOnce { persist_every: 100 },
        FsyncSchedule::Milliseconds(500),
    )
}

fn pack(meter: u32, watts: u32) -> Vec<u8> {
    [meter.to_le_bytes(), watts.to_le_bytes()].concat()
}

fn collect(wal: &Walrus, readings: &[(u32, u32)]) -> std::io::Result<()> {
    let packed: Vec<Vec<u8>> = readings.iter().map(|r| pack(r.0, r.1)).collect();
    let batch: Vec<&[u8]> = packed.iter().map(|p| p.as_slice()).collect();
    wal.batch_append_for_topic("readings", &batch)
}

fn sum_up(wal: &Walrus) -> std::io::Result<HashMap<u32, u64>> {
    let mut watts = HashMap::new();
    loop {
        let entries = wal.batch_read_for_topic("readings", 1 << 20, true)?;
        if entries.is_empty() {
            return Ok(watts);
        }
        for entry in entries {
            let meter = u32::from_le_bytes(entry.data[..4].try_into().unwrap());
            let value = u32::from_le_bytes(entry.data[4..].try_into().unwrap());
            *watts.entry(meter).or_insert(0) += u64::from(value);
        }
    }
}

fn main() -> std::io::Result<()> {
    let wal = open()?;
    collect(&wal, &[(1, 40), (2, 60), (1, 2)])?;
    println!("{:?}", sum_up(&wal)?);
    Ok(())
}
