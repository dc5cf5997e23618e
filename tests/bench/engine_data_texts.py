"""Long texts that programs make: JSON, tables and logs, with questions about them."""

import csv
import io
import json
import random

from tests.bench.engine_words import (
    CITIES,
    FIRST_NAMES,
    LAST_NAMES,
    PRODUCTS,
    SERVICES,
    TEAMS,
    THINGS,
    VERBS,
    Question,
    hexadecimal,
)


def _people(random_: random.Random, count: int) -> list[tuple[str, str]]:
    names = [(first, last) for first in FIRST_NAMES for last in LAST_NAMES]
    return random_.sample(names, count)


def users_json(random_: random.Random) -> tuple[str, list[Question]]:
    rows: list[dict[str, object]] = []
    questions: list[Question] = []
    for number, (first, last) in enumerate(_people(random_, 160), 1):
        email = f"{first}.{last}{random_.randrange(90)}@{random_.choice(['corp', 'mail', 'post'])}.example".lower()
        city = random_.choice(CITIES)
        phone = f"+44 20 7946 {random_.randrange(10000):04d}"
        rows.append(
            {
                "id": 4000 + number,
                "name": f"{first} {last}",
                "email": email,
                "active": True,
                "tenant": "northwind-eu",
                "address": {"city": city, "zip": f"{random_.randrange(10000, 99999)}"},
                "phone": phone,
                "role": random_.choice(["viewer", "editor", "admin"]),
            }
        )
        questions.append(Question(f"What is the email address of {first} {last}?", (email,)))
        questions.append(Question(f"phone number of {first} {last}", (phone,)))
        questions.append(Question(f"in which city does user {4000 + number} live", (f"{first} {last}", city)))
    return json.dumps({"total": len(rows), "page": 1, "users": rows}, indent=2), questions


def orders_json(random_: random.Random) -> tuple[str, list[Question]]:
    rows: list[dict[str, object]] = []
    questions: list[Question] = []
    for number in range(220):
        order = f"ORD-{random_.randrange(10**6):06d}"
        product, quantity = random_.choice(PRODUCTS), random_.randrange(1, 40)
        total = f"{random_.randrange(1000, 90000) / 100:.2f}"
        carrier, tracking = random_.choice(["DHL", "UPS", "Hermes"]), hexadecimal(random_, 10).upper()
        rows.append(
            {
                "order": order,
                "product": product,
                "quantity": quantity,
                "currency": "EUR",
                "total": float(total),
                "shipping": {"carrier": carrier, "tracking": tracking, "insured": False},
                "note": None if number % 9 else f"leave at {random_.choice(CITIES)} depot",
            }
        )
        questions.append(Question(f"tracking number of order {order}", (order, tracking)))
        questions.append(Question(f"What was the total of {order}?", (order, total.rstrip("0").rstrip("."))))
        questions.append(Question(f"shipment {tracking} belongs to which order and product", (order, product)))
    return json.dumps(rows, indent=2), questions


def events_json_lines(random_: random.Random) -> tuple[str, list[Question]]:
    lines: list[str] = []
    questions: list[Question] = []
    for number in range(260):
        service, thing = random_.choice(SERVICES), random_.choice(THINGS)
        trace, took = hexadecimal(random_, 16), random_.randrange(3, 9000)
        user = ".".join(random_.choice(pool) for pool in (FIRST_NAMES, LAST_NAMES)).lower()
        level = "error" if number % 13 == 0 else "info"
        event = {
            "ts": f"2026-02-11T{number // 20:02d}:{number % 60:02d}:{random_.randrange(60):02d}Z",
            "level": level,
            "service": service,
            "env": "production",
            "msg": f"{random_.choice(VERBS)} {thing}",
            "user": user,
            "trace": trace,
            "took_ms": took,
        }
        lines.append(json.dumps(event))
        questions.append(Question(f"which service logged trace {trace}", (trace, service)))
        questions.append(Question(f"how many milliseconds did trace {trace} take", (trace, str(took))))
    return "\n".join(lines), questions


def cluster_json(random_: random.Random) -> tuple[str, list[Question]]:
    services: dict[str, object] = {}
    questions: list[Question] = []
    for service in SERVICES:
        for zone in ("blue", "green"):
            name = f"{service}-{zone}"
            timeout, image = (
                random_.randrange(100, 9000),
                f"registry.example/{name}:{random_.randrange(9)}.{random_.randrange(90)}",
            )
            secret = f"vault/{hexadecimal(random_, 8)}"
            services[name] = {
                "image": image,
                "replicas": random_.randrange(1, 12),
                "limits": {"cpu": f"{random_.randrange(100, 4000)}m", "memory": f"{random_.randrange(64, 4096)}Mi"},
                "probes": {"liveness": {"path": "/healthz", "timeout_ms": timeout}, "readiness": {"path": "/ready"}},
                "secret_ref": secret,
                "env": {key: hexadecimal(random_, 6) for key in ("CACHE_KEY", "QUEUE_KEY")},
            }
            questions.append(Question(f"image of {name}", (image,)))
            questions.append(Question(f"which secret does {name} refer to", (secret,)))
            questions.append(Question(f"liveness probe timeout of {name}", (name, str(timeout))))
    return json.dumps({"cluster": "eu-1", "services": services}, indent=2), questions


def translations_json(random_: random.Random) -> tuple[str, list[Question]]:
    sections: dict[str, dict[str, str]] = {}
    questions: list[Question] = []
    for page in ("login", "billing", "profile", "export", "alerts", "teams", "search", "import", "audit", "webhooks"):
        for place in ("title", "help", "error", "empty", "confirm", "tooltip", "success", "warning", "footer", "mail"):
            thing, verb = random_.choice(THINGS), random_.choice(VERBS)
            code = f"E{random_.randrange(1000, 9999)}"
            text = f"{verb.capitalize()} the {thing} before you continue ({code}); see {random_.choice(TEAMS)} for help"
            sections.setdefault(page, {})[place] = text
            sections[page][f"{place}_short"] = f"{verb} {thing}"
            questions.append(Question(f"text of the {page} {place} message with {code}", (text,)))
    return json.dumps({"locale": "en", "messages": sections}, indent=4), questions


def sales_csv(random_: random.Random) -> tuple[str, list[Question]]:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["invoice", "date", "customer", "region", "product", "amount", "currency", "status"])
    questions: list[Question] = []
    for number in range(420):
        invoice = f"INV{70000 + number}"
        first, last = random_.choice(FIRST_NAMES), random_.choice(LAST_NAMES)
        amount = f"{random_.randrange(500, 900000) / 100:.2f}"
        customer = f"{last}, {first}" if number % 5 == 0 else f"{first} {last} Ltd"
        product = random_.choice(PRODUCTS)
        row = [
            invoice,
            f"2026-01-{1 + number // 15:02d}",
            customer,
            random_.choice(CITIES),
            product,
            amount,
            "EUR",
            "paid",
        ]
        writer.writerow(row)
        questions.append(Question(f"amount of invoice {invoice}", (invoice, amount)))
        questions.append(Question(f"which product was on {invoice}?", (invoice, product)))
    return out.getvalue(), questions


def sensors_tsv(random_: random.Random) -> tuple[str, list[Question]]:
    lines = ["station\tname\tkind\tunit\televation_m\tserial\tinstalled\towner"]
    questions: list[Question] = []
    for number in range(300):
        name = f"{random_.choice(CITIES)} {random_.choice(['Harbour', 'Ridge', 'Bridge', 'Field', 'Mill'])} {number}"
        serial, height = hexadecimal(random_, 8).upper(), random_.randrange(2, 2900)
        kind, owner = random_.choice(["anemometer", "barometer", "rain gauge"]), "Met Service"
        lines.append(f"ST{number:04d}\t{name}\t{kind}\thPa\t{height}\t{serial}\t20{random_.randrange(10, 26)}\t{owner}")
        questions.append(Question(f"serial of the {kind} at {name}", (name, serial)))
        questions.append(Question(f"elevation of station ST{number:04d}", (f"ST{number:04d}", str(height))))
    return "\n".join(lines) + "\n", questions


def application_log(random_: random.Random) -> tuple[str, list[Question]]:
    lines: list[str] = []
    questions: list[Question] = []
    for number in range(520):
        second = f"{8 + number // 90:02d}:{number % 60:02d}:{random_.randrange(60):02d}.{random_.randrange(1000):03d}"
        service, job = random_.choice(SERVICES[:8]), random_.randrange(10**5, 10**6)
        logger = f"[nio-8080-exec-{random_.randrange(12)}] c.example.{service.replace('-', '.')}"
        choice = random_.random()
        if choice < 0.55:
            lines.append(
                f"2026-03-07 {second}  INFO 1 --- {logger}.RequestFilter : "
                f"Completed request {job} in {random_.randrange(2, 900)} ms, status 200, cache hit"
            )
        elif choice < 0.85:
            person = random_.choice(FIRST_NAMES).lower()
            lines.append(
                f"2026-03-07 {second} DEBUG 1 --- {logger}.SessionManager : "
                f"Opened a session for user {person} from address 10.{random_.randrange(9)}.0.{job % 250}"
            )
        elif choice < 0.95:
            waited = random_.randrange(1000, 60000)
            lines.append(
                f"2026-03-07 {second}  WARN 1 --- {logger}.Queue : Job {job} is slow, waited {waited} ms in line"
            )
            questions.append(Question(f"how long did slow job {job} wait in line", (str(job), str(waited))))
        else:
            thing, code = random_.choice(THINGS), random_.randrange(4000, 5000)
            verb = random_.choice(VERBS)
            lines.append(
                f"2026-03-07 {second} ERROR 1 --- {logger}.Worker : Could not {verb} {thing} for job {job}: code {code}"
            )
            lines += [
                f"\tat com.example.{service}.Worker.run(Worker.java:{random_.randrange(400)})",
                "\tat com.example.Main.loop(Main.java:17)",
            ]
            questions.append(Question(f"which error code did job {job} fail with", (str(job), f"{code}")))
            questions.append(Question(f"error about {thing} in {service}, job {job}", (service, f"{job}")))
    return "\n".join(lines), questions


def access_log(random_: random.Random) -> tuple[str, list[Question]]:
    lines: list[str] = []
    questions: list[Question] = []
    for number in range(430):
        ip = f"203.0.{random_.randrange(100)}.{random_.randrange(250)}"
        path = f"/{random_.choice(['api', 'static', 'docs'])}/{random_.choice(SERVICES)}/{random_.randrange(900)}"
        status = random_.choice([200] * 9 + [404, 500, 503])
        size, stamp = random_.randrange(100, 90000), f"{number // 40:02d}:{number % 60:02d}:{random_.randrange(60):02d}"
        lines.append(f'{ip} - - [12/Mar/2026:{stamp} +0000] "GET {path} HTTP/1.1" {status} {size} "-" "curl/8.5"')
        questions.append(Question(f"status of the request for {path} from {ip}", (f'{path} HTTP/1.1" {status}', ip)))
        if status == 503:
            questions.append(Question(f"which address got 503 for {path}", (ip, path)))
    return "\n".join(lines), questions


def system_log(random_: random.Random) -> tuple[str, list[Question]]:
    lines: list[str] = []
    questions: list[Question] = []
    for number in range(420):
        stamp = f"Mar {1 + number // 40:2d} {number // 30:02d}:{number % 60:02d}:{random_.randrange(60):02d} host7"
        pid = random_.randrange(300, 30000)
        if number % 11 == 0:
            disk, sector = f"sd{random_.choice('abcdef')}{number}", random_.randrange(10**6, 10**8)
            lines.append(f"{stamp} kernel: I/O error on device {disk}, logical block {sector}")
            questions.append(Question(f"logical block of the I/O error on device {disk}", (disk, str(sector))))
        elif number % 7 == 0:
            unit, code = f"{random_.choice(SERVICES)}@{number}.service", random_.randrange(1, 255)
            lines.append(f"{stamp} systemd[1]: {unit}: Main process exited, code=exited, status={code}")
            questions.append(Question(f"with which status did {unit} exit", (f"{unit}: Main", f"status={code}")))
        else:
            lines.append(
                f"{stamp} sshd[{pid}]: Accepted publickey for {random_.choice(FIRST_NAMES).lower()} port {pid + 9}"
            )
    return "\n".join(lines), questions
