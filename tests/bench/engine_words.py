"""Words, and facts with the questions that a person might ask about them; # becomes a number."""
# ruff: noqa: E501 - lists of words

import random
from typing import NamedTuple

FIRST_NAMES = (
    "Ada Bruno Carla Dimitri Elena Farid Greta Hassan Ines Jonas Kofi Lena Mateo Nadia Omar Priya Quentin Rosa Stefan Tariq "
    "Ursula Viktor Wanda Ximena Yusuf Zoe"
).split()
LAST_NAMES = (
    "Abbott Bianchi Castro Dubois Eriksen Fischer Garcia Haddad Ivanov Jensen Kowalski Lindqvist Moreau Novak Okafor Petrov "
    "Quist Raman Silva Tanaka Ueda Vargas Weber Xu Yilmaz Zhou"
).split()
CITIES = "Lisbon Oslo Turin Gdansk Cork Bergen Malaga Lyon Graz Tampere Porto Ghent Basel Split Aarhus Leeds".split()
SERVICES = (
    "auth-gateway billing-core cart-sync data-export edge-proxy file-vault geo-index http-relay image-resize job-runner "
    "key-broker ledger-api mail-queue notify-hub order-flow price-feed quota-guard report-maker search-head tax-engine"
).split()
TEAMS = "platform billing search mobile security data support design growth payments infrastructure research".split()
VERBS = "rotate archive refresh validate merge publish restore throttle resolve migrate enqueue compact replay verify".split()
THINGS = [
    "access token", "audit trail", "blob index", "cache shard", "customer ledger", "delivery slot", "discount rule",
    "event stream", "feature flag", "invoice draft", "login session", "message batch", "price list", "report template",
    "schema version", "stock level", "tax table", "user profile",
]  # fmt: skip
PRODUCTS = [
    "oak desk", "steel lamp", "linen curtain", "cork board", "glass jar", "wool blanket", "copper kettle", "paper tray",
    "rubber mat", "bamboo shelf", "ceramic bowl", "canvas bag", "brass hook", "felt slippers", "marble coaster",
]  # fmt: skip
NOTES = [
    (
        "Backups",
        [
            (
                "How long do we keep nightly backups?",
                "Nightly snapshots are retained for # days, then moved to cold storage.",
            ),
            (
                "where is the backup encryption key stored",
                "The key that encrypts backups lives in safe # in the Oslo office.",
            ),
        ],
    ),
    (
        "Hiring",
        [
            ("salary band for senior engineers", "Senior engineers start at # thousand euros after the spring review."),
            ("who interviews candidates for the design role", "Design candidates are interviewed by Greta in room #."),
        ],
    ),
    (
        "Deployment",
        [
            ("when do we freeze deployments before a release", "Deployments freeze # hours before each release."),
            (
                "how do I roll back a bad deployment",
                "To roll back, run bin/rollback with build number # and wait for green.",
            ),
        ],
    ),
    (
        "Office move",
        [
            ("date and cost of the office move", "The move to the new office costs # thousand and happens in May."),
            (
                "parking spaces at the new building",
                "The new building has # parking spaces, half of them with chargers.",
            ),
        ],
    ),
    (
        "Incident 12 March",
        [
            (
                "root cause of the checkout outage",
                "The checkout outage was caused by an expired certificate on node #.",
            ),
            (
                "how many customers were affected by the outage",
                "In total # customers saw an error page during the outage.",
            ),
        ],
    ),
    (
        "Customer Meridian",
        [
            ("what discount did Meridian negotiate", "Meridian negotiated a discount of # percent for two years."),
            ("Meridian contact person for contracts", "Contracts with Meridian go through Ximena, extension #."),
        ],
    ),
    (
        "Database",
        [
            ("maximum number of database connections", "The pool allows # connections; more made the primary swap."),
            ("which migration is irreversible", "Migration # cannot be undone because it drops the legacy columns."),
        ],
    ),
    (
        "Preferences",
        [
            ("preferred indentation of the user", "He prefers tabs over spaces and lines of at most # characters."),
            ("what kind of coffee for the workshop", "For the workshop order # cups of decaf, nobody drinks filter."),
        ],
    ),
]
HTML_TOPICS = [
    (
        "Travel",
        [
            (
                "daily allowance when travelling abroad",
                "Abroad the daily allowance is # euros, receipts are not needed.",
            ),
            ("which class may I book on long flights", "Flights over # hours may be booked in premium economy."),
        ],
    ),
    (
        "Equipment",
        [
            ("how often can I replace my laptop", "A laptop is replaced after # months or when it is broken."),
            ("budget for a home office chair", "Up to # euros are paid for a chair at home."),
        ],
    ),
    (
        "Leave",
        [
            ("how many days of parental leave are there", "Parents take # days of paid leave in the first year."),
            ("can unused vacation be carried over", "At most # unused vacation days carry over until March."),
        ],
    ),
    (
        "Security training",
        [
            ("deadline for the phishing course", "The phishing course must be finished within # days of joining."),
            ("minimum length of a passphrase", "A passphrase has at least # characters and no dictionary quote."),
        ],
    ),
    (
        "Expenses",
        [
            ("until when must expenses be submitted", "Expenses are submitted within # days, later ones are refused."),
            ("approval limit of a team lead", "A team lead approves amounts up to # euros alone."),
        ],
    ),
    (
        "On call",
        [
            ("pay for a week of on call duty", "A week on call pays # euros, holidays count double."),
            ("how fast must a page be acknowledged", "Pages are acknowledged within # minutes, then they escalate."),
        ],
    ),
]


class Question(NamedTuple):
    """A question, and what a text must hold to answer it: the answer and what tells whose answer it is."""

    query: str
    answer: tuple[str, ...]


def hexadecimal(random_: random.Random, length: int) -> str:
    """Return random digits."""
    return "".join(random_.choice("0123456789abcdef") for _ in range(length))
