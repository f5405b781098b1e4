// What the core is measured against: generators as they are usually written in JavaScript.

const EPOCH_MS = 1_735_689_600_000;
const MASK_32 = 0xffff_ffff;

/** A Snowflake in BigInt, of the same layout: 41 timestamp, 10 node, 12 sequence. */
export function bigintSnowflake(clock) {
  const epoch = BigInt(EPOCH_MS);
  const node = 1n << 12n;
  let last = -1n;
  let sequence = 0n;
  return () => {
    const now = BigInt(clock()) - epoch;
    if (now === last) {
      sequence = (sequence + 1n) & 4095n;
    } else {
      last = now;
      sequence = 0n;
    }
    return (now << 22n) | node | sequence;
  };
}

/** The same in two 32-bit halves: no BigInt, and no number that a double cannot hold. */
export function halvesSnowflake(clock) {
  const node = 1 << 12;
  const id = { high: 0, low: 0 };
  let last = -1;
  let sequence = 0;
  return () => {
    const now = clock() - EPOCH_MS;
    if (now === last) {
      sequence = (sequence + 1) & 4095;
    } else {
      last = now;
      sequence = 0;
    }
    // 41 bits of time: the upper 31 in the high half, the lower 10 at the top of the low half.
    id.high = Math.floor(now / 1024) & MASK_32;
    id.low = ((now % 1024) << 22) | node | sequence;
    return id;
  };
}

/** UUID version 7 (RFC 9562): 48 bits of milliseconds, 74 random ones; as text, as it is used. */
export function uuidV7(clock) {
  const hex = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));
  // Random bytes are drawn for 256 at once: a call for each would be most of the cost.
  const pool = new Uint8Array(10 * 256);
  let at = pool.length;
  return () => {
    if (at === pool.length) {
      crypto.getRandomValues(pool);
      at = 0;
    }
    const now = clock();
    const high = Math.floor(now / 65536).toString(16).padStart(8, "0");
    const low = (now % 65536).toString(16).padStart(4, "0");
    const r = pool.subarray(at, at + 10);
    at += 10;
    const version = 0x70 | (r[0] & 0x0f);
    const variant = 0x80 | (r[2] & 0x3f);
    return `${high}-${low}-${hex[version]}${hex[r[1]]}-${hex[variant]}${hex[r[3]]}-${hex[r[4]]}${hex[r[5]]}${hex[r[6]]}${hex[r[7]]}${hex[r[8]]}${hex[r[9]]}`;
  };
}
