//! Messages as records of the commit log.

const MAGIC_V1: u32 = 0xDAA3_20A7;
const MAGIC_V2: u32 = 0xDAA3_20AB;
const LONGEST_V1_TOPIC: usize = 127;
const HOSTS_V6: i32 = 0x30;

/// All that a record holds; hosts have 8 or 20 bytes.
pub struct Record<'a> {
    pub topic: &'a str,
    pub queue_id: i32,
    pub body: &'a [u8],
    pub properties: &'a [u8],
    pub flag: i32,
    pub sys_flag: i32,
    pub born_timestamp: i64,
    pub born_host: &'a [u8],
    pub store_timestamp: i64,
    pub store_host: &'a [u8],
    pub reconsume_times: i32,
    pub queue_offset: i64,
    pub position: i64,
}

impl Record<'_> {
    /// How many bytes it takes; none when a part of it is longer than its length can say.
    pub fn size(&self) -> Option<i32> {
        let is_host = |host: &[u8]| host.len() == 8 || host.len() == 20;
        let is_short = |length: usize| i16::try_from(length).is_ok();
        let fits = is_host(self.born_host)
            && is_host(self.store_host)
            && is_short(self.topic.len())
            && is_short(self.properties.len());
        let lengths = 2 + if self.topic.len() > LONGEST_V1_TOPIC { 2 } else { 1 };
        let parts =
            self.born_host.len() + self.store_host.len() + self.topic.len() + self.properties.len();
        i32::try_from(72 + parts + lengths + self.body.len()).ok().filter(|_| fits)
    }

    /// Puts it behind what is in `data`.
    pub fn write(&self, data: &mut Vec<u8>, size: i32) {
        let is_long = self.topic.len() > LONGEST_V1_TOPIC;
        let hosts =
            i32::from(self.born_host.len() == 20) | i32::from(self.store_host.len() == 20) << 1;
        data.extend(size.to_be_bytes());
        data.extend(if is_long { MAGIC_V2 } else { MAGIC_V1 }.to_be_bytes());
        data.extend((crc32fast::hash(self.body) & 0x7FFF_FFFF).to_be_bytes());
        data.extend(self.queue_id.to_be_bytes());
        data.extend(self.flag.to_be_bytes());
        data.extend(self.queue_offset.to_be_bytes());
        data.extend(self.position.to_be_bytes());
        data.extend((self.sys_flag & !HOSTS_V6 | hosts << 4).to_be_bytes());
        data.extend(self.born_timestamp.to_be_bytes());
        data.extend(self.born_host);
        data.extend(self.store_timestamp.to_be_bytes());
        data.extend(self.store_host);
        data.extend(self.reconsume_times.to_be_bytes());
        data.extend(0_i64.to_be_bytes());
        data.extend((self.body.len() as i32).to_be_bytes());
        data.extend(self.body);
        if is_long {
            data.extend((self.topic.len() as i16).to_be_bytes());
        } else {
            data.push(self.topic.len() as u8);
        }
        data.extend(self.topic.as_bytes());
        data.extend((self.properties.len() as i16).to_be_bytes());
        data.extend(self.properties);
    }
}

/// The entry of a record in its queue.
pub fn unit(position: i64, size: i32, tags_code: i64) -> [u8; 20] {
    let mut unit = [0; 20];
    unit[..8].copy_from_slice(&position.to_be_bytes());
    unit[8..12].copy_from_slice(&size.to_be_bytes());
    unit[12..].copy_from_slice(&tags_code.to_be_bytes());
    unit
}
