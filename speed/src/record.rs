//! Records of the commit log, and their entries in queues.

const MAGIC_V1: u32 = 0xDAA3_20A7;
const MAGIC_V2: u32 = 0xDAA3_20AB;

/// What stands in front of a record's body but for what `common` holds, from sysFlag to the
/// offset of a prepared transaction.
pub struct Head<'a> {
    pub magic: u32,
    pub queue_id: i32,
    pub flag: [u8; 4],
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
        data.extend(size.to_be_bytes());
        data.extend(self.magic.to_be_bytes());
        data.extend((crc32fast::hash(body) & 0x7FFF_FFFF).to_be_bytes());
        data.extend(self.queue_id.to_be_bytes());
        data.extend(self.flag);
        data.extend(self.queue_offset.to_be_bytes());
        data.extend(self.position.to_be_bytes());
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
