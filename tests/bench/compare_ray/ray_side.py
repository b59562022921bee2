"""Ray's side of compare_ray: prints `ROW VALUE` for each row named, or for all."""
import os
import subprocess
import sys
import time

import numpy as np

# As ray.init has it by default, here for all processes on both hosts; read when ray is imported.
AUTH_MODE = os.environ.setdefault("RAY_AUTH_MODE", "token")
import ray  # noqa: E402

HOST = next((word.split("=", 1)[1] for word in sys.argv[1:] if word.startswith("--host=")), "")
ASKED = [word for word in sys.argv[1:] if not word.startswith("--")]
PIN = {"resources": {"there": 0.001}} if HOST else {}


@ray.remote(num_cpus=0)
class Echo:
    def echo(self, value):
        return value

    def pid(self):
        return os.getpid()

    def stay(self):
        time.sleep(120)

    def call_others(self, others, count):
        ray.get([others[i % len(others)].echo.remote(i) for i in range(count)])

    def die(self):
        os._exit(1)

    def read(self, box):
        begin = time.perf_counter()
        value = ray.get(box[0])
        return value.nbytes, time.perf_counter() - begin


@ray.remote(num_cpus=1)
def identity(value):
    return value


def wait_all(references):
    ray.get(references)


def rate(count, work):
    begin = time.perf_counter()
    work()
    return count / (time.perf_counter() - begin)


def spawn(count=1, **options):
    actors = [Echo.options(**PIN, **options).remote() for _ in range(count)]
    wait_all([actor.echo.remote(0) for actor in actors])
    return actors


def calls_sync():
    actor, = spawn()
    return rate(2000, lambda: [ray.get(actor.echo.remote(i)) for i in range(2000)])


def calls_async():
    actor, = spawn()
    return rate(20000, lambda: wait_all([actor.echo.remote(i) for i in range(20000)]))


def calls_n_to_n():
    servers, clients = spawn(2), spawn(2)
    return rate(20000, lambda: wait_all([client.call_others.remote(servers, 10000) for client in clients]))


def spawn_16():
    begin = time.perf_counter()
    spawn(16)
    return time.perf_counter() - begin


def warm_tasks():
    wait_all([identity.options(**PIN).remote(i) for i in range(100)])


def tasks_sync():
    warm_tasks()
    return rate(500, lambda: [ray.get(identity.options(**PIN).remote(i)) for i in range(500)])


def tasks_async():
    warm_tasks()
    return rate(5000, lambda: wait_all([identity.options(**PIN).remote(i) for i in range(5000)]))


def put_64_mib():
    value = np.ones(64 << 20, dtype=np.uint8)
    ray.put(value)
    best = []
    for _ in range(10):  # each is freed before the next, so that its segment is used again
        begin = time.perf_counter()
        reference = ray.put(value)
        best.append(time.perf_counter() - begin)
        del reference
    return value.nbytes / sorted(best)[len(best) // 2] / 1e9


def get_64_mib():
    reference = ray.put(np.ones(64 << 20, dtype=np.uint8))
    reader, = spawn()
    took = [ray.get(reader.read.remote([reference]))[1] for _ in range(50)]
    return sorted(took)[len(took) // 2] * 1e6


def get_1_gib():
    if not HOST:
        return None
    reader, = spawn()
    rates = []
    for _ in range(3):
        reference = ray.put(np.ones(1 << 30, dtype=np.uint8))
        nbytes, took = ray.get(reader.read.remote([reference]))
        rates.append(nbytes / took / 1e9)
        del reference
        time.sleep(1)
    return sorted(rates)[1]


class Shell:
    """A shell on HOST, or here, that waits for lines: a command costs a write, and over ssh a packet."""

    def __enter__(self):
        self.process = subprocess.Popen(["ssh", HOST, "sh"] if HOST else ["sh"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, bufsize=0)
        self.send("echo ready")
        if self.process.stdout.readline() != b"ready\n":
            raise RuntimeError("the shell does not answer")
        return self

    def send(self, command):
        self.process.stdin.write(f"{command}\n".encode())

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def death_seen():
    """From the sending of the signal to the error of a call made before: the 95th percentile, in milliseconds."""
    took = []
    with Shell() as shell:
        for _ in range(40):
            actor, = spawn()
            pid = ray.get(actor.pid.remote())
            call = actor.stay.remote()
            begin = time.perf_counter()
            shell.send(f"kill -KILL {pid}")
            try:
                ray.get(call)
            except ray.exceptions.RayActorError:
                took.append(time.perf_counter() - begin)
    return sorted(took)[int(len(took) * 0.95)] * 1e3


def restarted():
    took = []
    with Shell() as shell:
        for _ in range(5):
            actor, = spawn(max_restarts=-1, max_task_retries=-1)
            pid = ray.get(actor.pid.remote())
            begin = time.perf_counter()
            shell.send(f"kill -KILL {pid}")
            while ray.get(actor.pid.remote()) == pid:
                pass
            took.append(time.perf_counter() - begin)
    return sorted(took)[len(took) // 2] * 1e3


def stopped_seen():
    """The same for a process that is stopped; nothing if Ray does not notice in 30 s."""
    actor, = spawn()
    pid = ray.get(actor.pid.remote())
    call = actor.stay.remote()
    with Shell() as shell:
        begin = time.perf_counter()
        shell.send(f"kill -STOP {pid}")
        try:
            ray.get(call, timeout=30)
        except ray.exceptions.GetTimeoutError:
            return None
        except ray.exceptions.RayActorError:
            return (time.perf_counter() - begin) * 1e3
        finally:
            shell.send(f"kill -KILL {pid}")
    raise RuntimeError("a stopped actor has answered")


def smaps_of(pid):
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        return next(int(line.split()[1]) for line in rollup if line.startswith("Pss:")) / 1024


def cpu_of(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle():
    if HOST:
        return None, None
    actors = spawn(8)
    pids = ray.get([actor.pid.remote() for actor in actors])
    time.sleep(2)
    before = [cpu_of(pid) for pid in pids]
    time.sleep(10)
    used = sorted(cpu_of(pid) - begin for pid, begin in zip(pids, before))
    return sorted(map(smaps_of, pids))[4], used[4] / 10 * 100


ROWS = {row.__name__: row for row in (
    calls_sync, calls_async, calls_n_to_n, spawn_16, tasks_sync, tasks_async, put_64_mib, get_64_mib,
    get_1_gib, death_seen, restarted, stopped_seen)}


def run_ray(*words, there=False):
    """Runs the program `ray` here or on HOST."""
    program = os.path.join(os.path.dirname(sys.executable), "ray")
    command = ["ssh", HOST, f"RAY_AUTH_MODE={AUTH_MODE}", program, *words] if there else [program, *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}")


def start():
    """Starts a cluster: here alone, or its head here and a node with the resource `there` on HOST."""
    if not HOST:
        ray.init(include_dashboard=False, log_to_driver=False, object_store_memory=3 << 30)
        return
    if not os.path.exists(os.path.expanduser("~/.ray/auth_token")):
        run_ray("get-auth-token", "--generate")
    run_ray("start", "--head", "--node-ip-address=10.77.0.254", "--port=6399",
            "--include-dashboard=false", f"--object-store-memory={3 << 30}")
    run_ray("start", "--address=10.77.0.254:6399", f"--object-store-memory={3 << 30}",
            "--resources='{\"there\": 1}'", there=True)
    ray.init(address="10.77.0.254:6399", log_to_driver=False)


def stop():
    ray.shutdown()
    if HOST:
        for there in (True, False):
            run_ray("stop", "--force", there=there)


def main():
    begin = time.perf_counter()
    start()
    try:
        if not ASKED or "start" in ASKED:
            print("start", time.perf_counter() - begin, flush=True)
        for name, row in ROWS.items():
            if not ASKED or name in ASKED:
                value = row()
                if value is not None:
                    print(name, value, flush=True)
        if not ASKED or {"idle_memory", "idle_cpu"} & set(ASKED):
            memory, cpu = idle()
            if memory is not None:
                print("idle_memory", memory)
                print("idle_cpu", cpu)
    finally:
        stop()


main()
