import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Arrays;
import sun.security.util.Cache;

/**
 * Measures the cache that the JDK keeps TLS sessions in. It reads one command a line from
 * standard input and answers each with one line of numbers. Run it with
 * --add-exports java.base/sun.security.util=ALL-UNNAMED.
 */
public final class JdkCache {
    /** A session handle; hashed over all its bytes, as the JDK hashes its session IDs. */
    static final class Handle {
        private final byte[] bytes;

        Handle(byte[] bytes) {
            this.bytes = bytes;
        }

        @Override
        public int hashCode() {
            return Arrays.hashCode(bytes);
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Handle && Arrays.equals(bytes, ((Handle) other).bytes);
        }
    }

    private static final Object VALUE = new Object();
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private Cache<Object, Object> cache;
    private boolean handles;
    private int size;
    private int sessionBytes;
    private long next;
    private long random = 42;
    private int expiredPerMille;
    private long hits;

    public static void main(String[] args) throws Exception {
        JdkCache bench = new JdkCache();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            System.out.println(bench.command(line.trim().split(" ")));
            System.out.flush();
        }
    }

    private String command(String[] a) throws Exception {
        switch (a[0]) {
            case "prep":
                return prep(a[1], a[2], Integer.parseInt(a[3]), Integer.parseInt(a[4]));
            case "warm":
                return warm();
            case "fill":
                fill(Integer.parseInt(a[1]));
                return "ok";
            case "run":
                return run(a[1], Integer.parseInt(a[2]), Integer.parseInt(a[3]));
            case "expire":
                return expire(Integer.parseInt(a[1]));
            case "critical":
                return critical(Integer.parseInt(a[1]), Double.parseDouble(a[2]));
            case "memory":
                return memory(Integer.parseInt(a[1]), Integer.parseInt(a[2]));
            default:
                throw new IllegalArgumentException(a[0]);
        }
    }

    private String prep(String kind, String keys, int size, int lifetime) {
        cache = null;
        System.gc();
        this.size = size;
        handles = keys.equals("handle");
        cache = kind.equals("soft")
                ? Cache.newSoftMemoryCache(size, lifetime)
                : Cache.newHardMemoryCache(size, lifetime);
        next = 0;
        expiredPerMille = 0;
        fill(size);
        return "ok";
    }

    /** Runs each operation until it is compiled. */
    private String warm() {
        for (int i = 0; i < 20; i++) {
            int n = Math.min(20000, size / 4);
            for (String op : new String[] {"put", "get", "delete"}) {
                run(op, n, size / 2);
                fill(n);
            }
        }
        return "ok";
    }

    private static long mix(long x) {
        x += 0x9e3779b97f4a7c15L;
        x = (x ^ (x >>> 30)) * 0xbf58476d1ce4e5b9L;
        x = (x ^ (x >>> 27)) * 0x94d049bb133111ebL;
        return x ^ (x >>> 31);
    }

    private Object key(long i) {
        if (!handles) {
            return Integer.valueOf((int) i);
        }
        byte[] b = new byte[32];
        for (int w = 0; w < 4; w++) {
            long x = mix(4 * i + w);
            for (int j = 0; j < 8; j++) {
                b[8 * w + j] = (byte) (x >>> (8 * j));
            }
        }
        return new Handle(b);
    }

    private void fill(int n) {
        for (int i = 0; i < n; i++) {
            cache.put(key(next++), VALUE);
        }
    }

    private boolean shortLived(long i) {
        return Long.remainderUnsigned(mix(~i), 1000) < expiredPerMille;
    }

    /** The keys that a round works on, made before the clock starts. */
    private Object[] keys(String op, int n, int window) {
        Object[] keys = new Object[n];
        if (op.equals("put")) {
            for (int i = 0; i < n; i++) {
                keys[i] = key(next++);
            }
            return keys;
        }
        long first = next - window;
        long at = Long.remainderUnsigned(random = mix(random), window);
        for (int i = 0; i < n; ) {
            if (op.equals("get")) {
                at = Long.remainderUnsigned(random = mix(random), window);
            } else {
                at = (at + 7919) % window; // each once
            }
            if (!shortLived(first + at)) {
                keys[i++] = key(first + at);
            }
        }
        return keys;
    }

    private String run(String op, int n, int window) {
        Object[] keys = keys(op, n, window);
        long before = hits;
        long cpu = THREADS.getCurrentThreadCpuTime();
        long wall = System.nanoTime();
        switch (op) {
            case "put":
                for (Object k : keys) {
                    cache.put(k, VALUE);
                }
                break;
            case "get":
                for (Object k : keys) {
                    if (cache.get(k) != null) {
                        hits++;
                    }
                }
                break;
            default:
                for (Object k : keys) {
                    cache.remove(k);
                }
        }
        wall = System.nanoTime() - wall;
        cpu = THREADS.getCurrentThreadCpuTime() - cpu;
        return cpu + " " + wall + " " + (hits - before);
    }

    /** Fills the cache so that a share of it, chosen by hash, has expired. */
    private String expire(int perMille) throws InterruptedException {
        cache.clear();
        next += size; // fresh keys
        expiredPerMille = perMille;
        for (int i = 0; i < size; i++) {
            cache.setTimeout(shortLived(next) ? 1 : 86400);
            cache.put(key(next++), VALUE);
        }
        cache.setTimeout(86400);
        Thread.sleep(1100);
        return "ok";
    }

    /** Puts at the rate at which entries expire, and answers with percentiles. */
    private String critical(int lifetime, double seconds) {
        double gap = lifetime * 1e9 / size;
        cache.clear();
        cache.setTimeout(lifetime);
        int warmup = (int) (1.5 * size);
        int n = (int) (seconds * 1e9 / gap);
        long[] took = new long[n];
        long start = System.nanoTime();
        for (int i = 0; i < warmup + n; i++) {
            Object k = key(next++);
            long due = start + (long) (i * gap);
            while (System.nanoTime() < due) {
                Thread.onSpinWait();
            }
            long t = System.nanoTime();
            cache.put(k, VALUE);
            if (i >= warmup) {
                took[i - warmup] = System.nanoTime() - t;
            }
        }
        Arrays.sort(took);
        return took[n / 2] + " " + took[n * 99 / 100] + " " + took[(int) (n * 0.999)] + " " + took[n - 1];
    }

    /** Bytes of heap for each of n entries with a value of their own. */
    private String memory(int n, int valueBytes) {
        cache = null;
        long before = heap();
        cache = Cache.newSoftMemoryCache(n, 86400);
        handles = true;
        for (int i = 0; i < n; i++) {
            cache.put(key(next++), new byte[valueBytes]);
        }
        long after = heap();
        return Long.toString((after - before) / n);
    }

    private static long heap() {
        long least = Long.MAX_VALUE;
        for (int i = 0; i < 3; i++) {
            System.gc();
            least = Math.min(least, Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory());
        }
        return least;
    }
}
