#!/usr/bin/env python3
"""Writes tests/golden/bpe.json: texts, the ids that the PyPI package `tokenizers` gives them, and ids decoded.

    pip install tokenizers==0.23.3
    python tools/make_bpe_golden.py tests/golden/bpe.json [--model models/smollm2]

Each case has ids under a small byte-level BPE tokenizer that the package trains here (it goes into the file), and under
that of SmolLM2-135M-Instruct (tokenizer.json in --model; not copied). Texts are handmade or drawn from a seeded
generator; one that is not UTF-8 is given as hexadecimal bytes, and its ids are those of the text in which Python has
replaced what is invalid. Characters younger than Unicode 8 are left out: versions of Unicode classify them differently.
"""
import argparse
import json
import pathlib
import random

import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

CORPUS = """The old lighthouse keeper wrote one letter every winter. Attention lets a network look at every word at once.
for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; }  return std::vector<float>(10, 1.0f);  // the sum
def attend(query, key, value): return softmax(query @ key.T) @ value  # don't, it's, we're, they've, I'm, you'll, he'd
Grüße aus München, les élèves étaient là où ça mène. Привет, мир! Как дела? Γειά σου Κόσμε. 你好世界，我爱你。 こんにちは世界 안녕하세요
    indented    text\twith\ttabs\n\n\nand lines 1234567890 3.14159 2,048 100% 😀🎉🚀 (see https://example.org/path?q=1&r=2)
""" * 4
WORDS = """the a of to in it's don't we've I'll he'd they're I'm word token piece matrix attention head key query value naïve café
for while return int float const auto std::vector def lambda self None true false x y z i++ += == != && || -> =>""".split()
POOLS = ["αβγδεζηθικλμνξοπρσςτυφχψω", "абвгдежзийклмнопрстуфхцчшщъыьэюя", "אבגדהוזחטיכלמנסעפצקרשת", "ابتثجحخدذرزسشصضطظعغفقكلمنهوي", "你好世界人大中文東京日本語",
         "のはにをがアイウエオ", "한글안녕하세요", "áàâäãåçéèêëíìîïñóòôöõúùûüýÿ", "\u0300\u0301\u0308\u030a\u0323\u0327", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
         " ", "  ", "\t\n\r \u00a0\u2009\u3000\u0085\u2028\u000b\u000c", "\u200b\u200d\u00ad\ufeff\u0001\u001f", "0123456789", "٠١٢٣٤५६७ⅧⅷⅣ½¼²³①②", "😀🎉🚀👍🏽👩🇩🇪❤️✔️",
         "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "ªºʰˢǅᾼ"]
HANDMADE = [
    "", " ", "  ", "   ", "\n", "\n\n", " \n", "\n ", "a", " a", "a ", "  a", "a  ", "a  b", "a   b", "a \n b", "a\n\n  b", "\t\tif x:\n\t\t\ty = 1\n", "a\u00a0b", "a \u00a0b",
    "a\u3000\u3000b", "a\u2028b\u2029c", "x\u0085y \u0085 z", "a\u200bb", "line\r\nline\r\n\r\n", " " * 17 + "x", "x" + " " * 40, " " * 100, "\n" * 50, "\t \t \tx",
    "Hello, world!", "hello,world", "don't can't it's we're they've I'm you'll he'd", "DON'T IT'S", "'s 't 're", "''s '''t", " 's", "a'sb", "x'lly 'll'll", "'", "' '", "rock'n'roll", "’s don’t",
    "3.14159 and 2,048", "1234567890", "a1b22c333", "1 2  3   4", "x² ½ ⅷ Ⅷ ① ٣٤ ५६", "v1.2.3-rc4", "0x1F 1e-5 100%", "12 :34: 56", "²³a", "CO₂ m²",
    "for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; }", "std::vector<float> v(10, 1.0f);", "def f(x):\n    return x ** 2  # square\n", "snake_case camelCase kebab-case SCREAMING_CASE",
    "https://example.org/path?q=1&r=2#top", "{\"key\": [1, 2.5, null, true]}", "<div class=\"a\">&nbsp;</div>", "#include <Eigen/Core>\n\nint main() {\n\treturn 0;\n}\n", "a_b__c___d", "!!!???...", "!? a!?b", "(a)(b)",
    "Café CAFÉ cafe\u0301 e\u0301\u0301", "résumé naïve façade", "Ångström A\u030angstro\u0308m", "a\u0301\u0302\u0303b", "\u0301start", " \u0301x", "नमस्ते दुनिया", "தமிழ்", "ไทย ภาษา", "שָׁלוֹם עולם", "السَّلَامُ عَلَيْكُمْ",
    "Straße İstanbul ǅungla ﬁsh", "Привет, мир! Ёлка", "你好，世界！", "東京は日本のcapitalです。", "ガギグ か\u3099", "한글 안녕하세요 \u1100\u1161\u11ab", "\U00020000\U0002A700x", "𝒜𝓑 𝟙𝟚", "ｆｕｌｌ　ｗｉｄｔｈ",
    "😀", "😀 smile 🎉party🚀", "👨\u200d👩\u200d👧 family", "👍🏽 thumbs", "🇩🇪 flag", "✔️ done ❤️", "🎉🎉🎉🎉", "nul\u0000byte", "bell\u0007del\u007fesc\u001b[0m", "repl\ufffdacement", "private\ue000use", "bom\ufeffinside",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "<|im_start|>", "<|im_start|><|im_end|>", "<|im_start", "a<|im_end|>b", " <|im_end|> ", "<|endoftext|><|endoftext|>x", "<|IM_END|>", "<<|im_end|>>", "<tool> x</tool>", "<tool><tool>",
    "<|im_end|> 's", "the the the the", "a" * 300, "ab" * 150, "the" * 60, "." * 200, "é" * 100, "antidisestablishmentarianism", "x" * 64 + "'s", "lorem ipsum dolor sit amet " * 6,
]
INVALID = ["ff", "61ff62", "c3", "c328", "e28", "e282", "e28261", "e2828282", "f09f98", "f09f9861", "f0809f80", "c0af", "eda080", "f4908080", "f8888080", "80", "8080", "61e2", "e4bda0e5a5", "20ff20ff", "c3a9c3", "f09f9880f09f98"]


def tiny_tokenizer():
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    made.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(vocab_size=480, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    made.train_from_iterator(CORPUS.split("\n"), trainer)
    made.add_tokens([AddedToken("<tool>", normalized=True)])
    return made


def generated(count, seed=20240611):
    draw = random.Random(seed)
    for _ in range(count):
        parts = []
        for _ in range(draw.randint(1, 9)):
            kind = draw.random()
            if kind < 0.45:
                word = draw.choice(WORDS)
                parts.append(draw.choice([word, word, word.capitalize(), word.upper()]))
            elif kind < 0.9:
                pool = draw.choice(POOLS)
                parts.append("".join(draw.choice(pool) for _ in range(draw.randint(1, 6))))
            else:
                parts.append("".join(draw.choice(draw.choice(POOLS)) for _ in range(draw.randint(1, 10))))
            parts.append(draw.choice(["", "", " ", " ", " ", "  ", "\n"]))
        yield "".join(parts)


def rows(tiny, model):
    for text in dict.fromkeys(HANDMADE + list(generated(120))):
        yield {"text": text, "tiny": tiny.encode(text).ids, "smollm2": model.encode(text).ids}
    for digits in INVALID:
        data = bytes.fromhex(digits + "0" * (len(digits) % 2))
        text = data.decode("utf-8", errors="replace")
        yield {"bytes": data.hex(), "tiny": tiny.encode(text).ids, "smollm2": model.encode(text).ids}


def decoded(tiny, model, count, seed=7):
    """Ids drawn at random, most of which join to no valid UTF-8."""
    draw = random.Random(seed)
    single = [model.token_to_id(c) for c in pre_tokenizers.ByteLevel.alphabet()]
    single = sorted(i for i in single if i is not None)
    for _ in range(count):
        ids = [draw.randrange(tiny.get_vocab_size()) for _ in range(draw.randint(1, 10))]
        both = [draw.choice(single) if draw.random() < 0.6 else draw.randrange(model.get_vocab_size()) for _ in range(draw.randint(1, 10))]
        yield {"tiny": ids, "tiny_text": tiny.decode(ids), "tiny_all": tiny.decode(ids, skip_special_tokens=False), "smollm2": both, "smollm2_text": model.decode(both)}


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("out", type=pathlib.Path)
    options.add_argument("--model", type=pathlib.Path, default=pathlib.Path("models/smollm2"))
    options = options.parse_args()
    tiny, model = tiny_tokenizer(), Tokenizer.from_file(str(options.model / "tokenizer.json"))
    cases, decodings = list(rows(tiny, model)), list(decoded(tiny, model, 60))
    dump = lambda row: json.dumps(row, separators=(",", ":"))
    with options.out.open("w", encoding="ascii") as out:
        head = {"made_by": "tools/make_bpe_golden.py", "tokenizers": tokenizers.__version__}
        out.write(json.dumps(head)[:-1] + ',\n"tokenizer": ' + dump(json.loads(tiny.to_str())))
        out.write(',\n"cases": [\n' + ",\n".join(map(dump, cases)) + '\n],\n"decoded": [\n' + ",\n".join(map(dump, decodings)) + "\n]}\n")
    print(f"{options.out}: {len(cases)} texts, {len(decodings)} lists of ids, tokenizers {tokenizers.__version__}")


if __name__ == "__main__":
    main()
