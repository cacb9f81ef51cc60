// Generated recordings, so that the tests know every number on a page.

export const START = 1741785600.25;
export const EVIL = `<script>alert(1)</script>"'&`;

/** Reproducible noise. */
function noise(seed) {
  let state = seed;
  return () => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return state / 2147483648;
  };
}

/** Rows of the given lengths; `job` gives the cells at second `t`, other cells are idle. */
export function rows(lengths, job) {
  const tables = { process: [], system: [], extra: [] };
  let t = 0;
  lengths.forEach((length, number) => {
    t += length;
    const does = job(t, number, length);
    const timestamp = Math.round((START + t) * 1000) / 1000;
    const { process = {}, system = {}, extra = {} } = does;
    tables.process.push({
      timestamp, pid: 4242, children: 2, utime: 0.9, stime: 0.1, cpu_usage: 1, memory: 512000, read_bytes: 0, write_bytes: 0,
      gpu_usage: 0, gpu_vram: 0, gpu_utilized: 0, ...process,
    });
    tables.system.push({
      timestamp, processes: 120, utime: 1.2, stime: 0.2, cpu_usage: 1.4, memory_free: 9e6, memory_used: 2.4e6, memory_buffers: 2e5,
      memory_cached: 4e6, memory_active: 2e6, memory_inactive: 1e6, disk_read_bytes: 0, disk_write_bytes: 0,
      disk_space_total_gb: 200, disk_space_used_gb: 61.5, disk_space_free_gb: 128.25, net_recv_bytes: 0, net_sent_bytes: 0,
      gpu_usage: 0, gpu_vram: 0, gpu_utilized: 0, ...system,
    });
    tables.extra.push({ timestamp, elapsed: length, missed_ticks: 0, tracker_cpu: 0.0004, tracker_memory: 4200, cpu_seen: 1, ...extra });
  });
  return tables;
}

export function snapshot(tables, run = {}, head = {}) {
  const last = tables.process.at(-1) ?? tables.system.at(-1) ?? { timestamp: START };
  return {
    metadata: {
      version: 1, resource_tracker: { version: '0.1.0', implementation: 'procfs' }, pid: 4242, children: true, interval: 1,
      method: null, autostart: true, track_processes: true, track_system: true, discover_server: true, discover_cloud: true,
      start_time: START, stop_time: last.timestamp, duration: last.timestamp - START, ...head.metadata,
    },
    server_info: {
      os: 'linux', vcpus: 8, memory_mb: 15788.21, gpu_count: 0, gpu_names: [], gpu_name: '', gpu_memory_mb: 0,
      cpu_limit: 4, memory_limit_mb: null, allocation: 'dedicated', ...head.server_info,
    },
    cloud_info: { vendor: 'unknown', instance_type: 'unknown', region: 'unknown', discovery_time: 0.1, ...head.cloud_info },
    run: { id: '3f9c1a7b2d40', job: 'train', command: ['python', 'train.py', '--epochs', '12'], host: 'node-17', status: 'finished',
      exit_code: 0, cpu_source: 'perf', coverage: 0.998, ...run },
    process_metrics: tables.process, system_metrics: tables.system, extra_metrics: tables.extra,
  };
}

const seconds = (count) => Array.from({ length: count }, () => 1);

/** A job of 25 minutes that loads data, trains on a GPU in epochs, and writes its result. For screenshots. */
export function training() {
  const random = noise(7);
  const count = 1500;
  const tables = rows([0.75, ...seconds(count), 0.4], (t, _, length) => {
    const loading = t < 240, saving = t > 1380;
    const epoch = ((t - 240) % 190) / 190;
    const training = !loading && !saving && epoch < 0.86;
    const cpu = loading ? 1.1 + random() * 0.5 : training ? 2.6 + random() * 0.9 + Math.sin(t / 9) * 0.2 : 0.7 + random() * 0.5;
    const memory = 380e3 + Math.min(t, 240) * 21e3 + (training ? 6e5 * Math.min(epoch * 4, 1) : 0) + random() * 9e4;
    const gpu = training ? 0.72 + random() * 0.25 : 0;
    const read = loading ? length * (60 + random() * 80) * 1e6 : training && epoch < 0.05 ? random() * 3e7 : 0;
    const write = saving ? length * (90 + random() * 60) * 1e6 : epoch > 0.93 && !loading ? random() * 8e7 : 0;
    return {
      process: {
        cpu_usage: cpu, memory: Math.round(memory), read_bytes: Math.round(read), write_bytes: Math.round(write), gpu_usage: gpu,
        gpu_vram: loading ? 0 : training ? 9800 + random() * 900 : 6100, gpu_utilized: gpu > 0 ? 1 : 0,
      },
      system: {
        cpu_usage: cpu + 0.2 + random() * 0.3, memory_used: Math.round(memory * 1.02 + 1.1e6), disk_read_bytes: Math.round(read * 1.02),
        disk_write_bytes: Math.round(write + random() * 4e6), disk_space_used_gb: 61.5 + Math.max(0, t - 1380) / 12,
        net_recv_bytes: Math.round(loading ? length * (20 + random() * 30) * 1e6 : random() * 4e4), net_sent_bytes: Math.round(length * random() * (saving ? 3e7 : 2e4)),
        gpu_usage: gpu, gpu_vram: loading ? 420 : training ? 10400 + random() * 900 : 6600, gpu_utilized: gpu > 0 ? 1 : 0,
      },
      extra: { memory_peak: Math.round(memory * 1.01) },
    };
  });
  return snapshot(tables, { job: 'train-resnet', tags: { branch: 'main', dataset: 'imagenet-100' } }, {
    server_info: { vcpus: 8, cpu_limit: null, memory_mb: 31786, gpu_count: 1, gpu_names: ['Tesla T4'], gpu_name: 'Tesla T4', gpu_memory_mb: 15360 },
    cloud_info: { vendor: 'aws', instance_type: 'g4dn.2xlarge', region: 'us-east-1' },
  });
}

/** Ten rows. Row 4 was not measured, and the machine was suspended for 5 s between rows 6 and 7. */
export function small(run, head) {
  const lengths = [0.5, 1, 1, 1, 1, 1, 1, 1, 1, 0.25];
  const tables = rows(lengths, (_, number) => ({
    process: { cpu_usage: number === 4 ? null : number === 7 ? 3 : 1, memory: 102400 * (number + 1) },
    system: { net_recv_bytes: 1e6 * lengths[number] },
  }));
  for (const table of Object.values(tables)) table.slice(7).forEach((row) => { row.timestamp += 5; });
  return snapshot(tables, run, head);
}

/** Two days at one row per second, with a peak of one second. */
export function long() {
  const spike = 100_000;
  const tables = rows(seconds(172_800), (_, number) => ({
    process: { cpu_usage: number === spike ? 7.5 : 1 + (number % 10) / 10, memory: number === spike + 1 ? 8e6 : 1e6 },
  }));
  return snapshot(tables, { job: 'two days' });
}

const none = { process: [], system: [], extra: [] };

/** Unusual runs by name. */
export const odd = {
  'one row': () => snapshot(rows([0.3], () => ({}))),
  'no system table': () => {
    const tables = rows(seconds(20), (t) => ({ process: { cpu_usage: t % 3 } }));
    return snapshot({ ...tables, system: [] }, {}, { metadata: { track_system: false } });
  },
  'no process table': () => {
    const tables = rows(seconds(20), (t) => ({ system: { cpu_usage: t % 3 } }));
    return snapshot({ ...tables, process: [] }, {}, { metadata: { track_processes: false } });
  },
  'no samples': () => snapshot(none),
  running: () => small({ status: 'running', exit_code: undefined }),
  failed: () => small({ status: 'failed', exit_code: 3 }),
  killed: () => small({ status: 'killed', exit_code: undefined, signal: 9 }),
  hostile: () => small(
    { job: EVIL, host: `<img src="http://127.0.0.1:9/x" onerror="alert(2)">`, command: [EVIL, '</script>', '--x="y"'], tags: { [EVIL]: EVIL }, notes: [EVIL] },
    { cloud_info: { vendor: EVIL, instance_type: EVIL, region: EVIL }, server_info: { os: EVIL, gpu_count: 1, gpu_names: [EVIL] } },
  ),
};
