//! Records of the commit log, and their entries in queues.

use crate::part;

pub const UNIT: usize = 20; // of an entry of a queue
const MAGIC_V1: u32 = 0xDAA3_20A7;
const MAGIC_V2: u32 = 0xDAA3_20AB;

/// What stands in front of a record's body but for what `common` holds, from sysFlag to the
/// offset of a prepared transaction.
pub struct Head<'a> {
    pub magic: u32,
    pub queue_id: i32,
    pub flag: i32,
    pub queue_offset: i64,
    pub position: i64,
    pub common: &'a [u8],
}

/// The magic of a topic's records, and the topic as they have it, with its length.
pub fn topic_part(topic: &str) -> Option<(u32, Vec<u8>)> {
    let length = u16::try_from(topic.len()).ok().filter(|length| *length < 1 << 15)?;
    let name = topic.bytes();
    Some(match length {
        0..128 => (MAGIC_V1, [length as u8].into_iter().chain(name).collect()),
        _ => (MAGIC_V2, length.to_be_bytes().into_iter().chain(name).collect()),
    })
}

impl Head<'_> {
    /// Puts the record behind those in `data`, and its entry behind those in `units`, if it ends at
    /// `limit` or before; where it ends. Its properties have fewer than 32 KB.
    pub fn write(
        &self,
        (data, units): (&mut Vec<u8>, &mut Vec<u8>),
        (body, topic, properties): (&[u8], &[u8], &[u8]),
        tags_code: i32,
        limit: i64,
    ) -> Option<i64> {
        let size = 42 + self.common.len() + body.len() + topic.len() + properties.len();
        let size = i32::try_from(size).ok()?;
        let end = self.position.checked_add(size.into()).filter(|end| *end <= limit)?;
        let checksum = (crc32fast::hash(body) & 0x7FFF_FFFF) as i32;
        let ints = [size, self.magic as i32, checksum, self.queue_id, self.flag];
        data.extend(ints.map(i32::to_be_bytes).as_flattened());
        data.extend([self.queue_offset, self.position].map(i64::to_be_bytes).as_flattened());
        data.extend(self.common);
        data.extend((body.len() as i32).to_be_bytes());
        data.extend(body);
        data.extend(topic);
        data.extend((properties.len() as i16).to_be_bytes());
        data.extend(properties);
        units.extend(self.position.to_be_bytes());
        units.extend(size.to_be_bytes());
        units.extend(i64::from(tags_code).to_be_bytes());
        Some(end)
    }
}

/// What the key index needs of a record. See `check_record` in `orbitmq/wire/record.py`.
pub struct Stored<'a> {
    pub size: usize,
    pub physical_offset: i64,
    pub sys_flag: i32,
    pub store_timestamp: i64,
    pub topic: &'a [u8],
    pub properties: &'a [u8],
}

impl<'a> Stored<'a> {
    /// The record that `data` begins with, if it is sound.
    pub fn read(data: &'a [u8], verify_crc: bool) -> Option<Self> {
        let int = |at| part(data, at).map(i32::from_be_bytes).ok();
        let long = |at| part(data, at).map(i64::from_be_bytes).ok();
        let size = usize::try_from(int(0)?).ok()?;
        let (magic, sys_flag) = (int(4)? as u32, int(36)?);
        let host = |bit| if sys_flag & bit == 0 { 8 } else { 20 };
        let stored_at = 48 + host(0x10);
        let length_at = stored_at + 8 + host(0x20) + 12;
        let body_length = usize::try_from(int(length_at)?).ok()?;
        let (body, mut rest) = data.get(length_at + 4..size)?.split_at_checked(body_length)?;
        let topic = match magic {
            MAGIC_V1 => {
                let (length, topic) = rest.split_first()?;
                rest = topic;
                take(&mut rest, (*length as i8).into())?
            }
            MAGIC_V2 => take_text(&mut rest)?,
            _ => return None,
        };
        let properties = take_text(&mut rest)?;
        let is_sound =
            !verify_crc || body.is_empty() || crc32fast::hash(body) & 0x7FFF_FFFF == int(8)? as u32;
        (rest.is_empty() && is_sound).then_some(Stored {
            size,
            physical_offset: long(28)?,
            sys_flag,
            store_timestamp: long(stored_at)?,
            topic,
            properties,
        })
    }
}

/// Take so many bytes off the front of `data`.
pub fn take<'a>(data: &mut &'a [u8], length: i32) -> Option<&'a [u8]> {
    let (taken, rest) = data.split_at_checked(length.try_into().ok()?)?;
    *data = rest;
    Some(taken)
}

/// Take a text of less than 32 KB off the front of `data`, behind its length.
pub fn take_text<'a>(data: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = data.split_first_chunk()?;
    *data = rest;
    take(data, i16::from_be_bytes(*length).into())
}
