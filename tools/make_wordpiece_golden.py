#!/usr/bin/env python3
"""Writes tests/golden/wordpiece.json: texts, and the ids that the PyPI package `tokenizers` gives them.

    pip install tokenizers==0.23.3
    python tools/make_wordpiece_golden.py tests/golden/wordpiece.json [--model models/minilm]

Each case has ids under a small vocabulary made here, and under all-MiniLM-L6-v2's (vocab.txt in --model; the
vocabulary itself is not copied). Texts are handmade or drawn from a seeded generator. Characters younger than
Unicode 8 are left out: the package classifies punctuation and marks by that version.
"""
import argparse
import json
import pathlib
import random
import tempfile

import tokenizers
from tokenizers import BertWordPieceTokenizer

MAX_LENGTH = 64
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
STEMS = """the a an and of to in on is it that this one two cat dog rain train house bread light letter winter
un re pre over under work play read write cook walk token word piece matrix attention head key query value strasse
istanbul naive cafe resume uber angstrom hello world privet 3 14 20 100""".split()
ENDINGS = "s ed er ing ly ness ment able tion al ist ization ve".split()
SCRIPTS = "αβγδεζηθικλμνξοπρσςτυφχψω абвгдежзийклмнопрстуфхцчшщъыьэюя אבגדהוזחטיכלמנסעפצקרשת ابتثجحخدذرزسشصضطظعغفقكلمنهوي"
SINGLES = "你好世界人大中文東京日本語のはにをがアイウエオ한글漢字ßæøœłđıßﬁ€£°±×÷→≠😀🎉🚀한글"

HANDMADE = [
    "", " ", "a", "A", "[CLS]", "[SEP]", "cat [MASK] dog", "[mask]", "[PAD][PAD]", "[UNK] cat[SEP]dog", "[[SEP]]", "[CLS",
    "Hello, world!", "hello,world", "don't  stop", "it's 3.14159 or 2,048", "e-mail: a.b@c.org", "C++20 && x != y;",
    "for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; }", "std::vector<float> v(10, 1.0f);", "def f(x): return x ** 2 # square",
    "snake_case camelCase kebab-case SCREAMING_CASE", "https://example.org/path?q=1&r=2#top", "$100 €20 £3 ¥5", "50% ^ ~ ` | \\ /",
    "Café CAFÉ café cafe\u0301 CAFE\u0301", "résumé naïve façade coöperate Ångström Å Å", "Æsop œuvre Øre łódź đ",
    "İstanbul ISTANBUL istanbul ıstanbul I\u0307stanbul", "Straße STRASSE ẞ ß", "ﬁsh ﬂow oﬃce ĳ ŉ", "ΣΊΣΥΦΟΣ Σίσυφος σίσυφος",
    "Привет, мир! ЁЛКА ёлка Й й", "שָׁלוֹם עולם", "السَّلَامُ عَلَيْكُمْ", "你好，世界！", "我愛NY你", "東京は日本のcapitalです。", "ガギグ か\u3099",
    "한글 안녕하세요", "ไทย ภาษา", "हिन्दी में", "தமிழ்", "\U00020000\U0002A700x\U0002F800 \uF900", "x\U0002B820y \U0002B920",
    "😀 smile 🎉party🚀", "👨\u200d👩\u200d👧 family", "👍🏽 thumbs", "🇩🇪 flag", "✔️ done ❤️", "a\u0301\u0302\u0303b", "\u0301start", "e\u0301\u0327 \u1ec7 ệ",
    "tab\tnew\nline\rreturn", "nbsp\u00a0em\u2003ideographic\u3000space", "zero\u200bwidth\u200cjoin\u200der", "soft\u00adhyphen", "bom\ufeffinside", "bell\u0007del\u007fesc\u001b[0m",
    "nul\u0000byte", "repl\ufffdacement", "private\ue000use", "nel\u0085line", "line\u2028sep\u2029para", "vt\u000bff\u000c", "rtl\u202emark\u200f",
    "“quoted” ‘single’ «guillemets» „low“", "em—dash en–dash hy‐phen non‑breaking minus−sign", "ellipsis… bullet• middle·dot", "¿Qué? ¡Sí!", "§ ¶ † ‡ ※", "、。「」『』【】〜・",
    "½ ¼ ² ³ ¹ ₁ ⅷ Ⅷ ① ㎏ ℃ K Ω", "ª º ʰ ˢ", "𝒜𝓑 𝟙𝟚 ｆｕｌｌ ｗｉｄｔｈ", "ǅ ǆ ǄUNGLA", "≠ ≮ ∉ ; ` ·", "x" * 100, "x" * 101, "é" * 100, "é" * 101, "한" * 40, "a" * 99 + " " + "b" * 100,
    "antidisestablishmentarianism", "unplayable overworkedness retokenization", "supercalifragilisticexpialidocious", "qzx" * 30, "word " * 100, "!" * 80, "the" * 33 + "s",
    "a b", "##s ing", "##", "# # a##b", "cats,dogs;(trains)", "I'm 20's", "1,000,000.00", "v1.2.3-rc4", "\u1100\u1161\u11ab", "한\u0301글", "\U0001D15E\U0001D1BC", "ᾳ ᾼ ΐ ﬀ ǰ",
]


def vocabulary():
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)] + list("0123456789")
    marks = [chr(c) for c in range(33, 127) if not chr(c).isalnum()] + list("“”‘’«»—–…¿¡§、。「」，！")
    scripts = [c for c in dict.fromkeys(SCRIPTS + SINGLES) if c != " "]
    pieces = SPECIAL + letters + ["##" + c for c in letters] + marks + STEMS + ["##" + e for e in ENDINGS]
    return list(dict.fromkeys(pieces + scripts + ["##" + c for c in scripts]))


def generated(count, seed=20240301):
    draw = random.Random(seed)
    pools = [SCRIPTS, SINGLES, "áàâäãåçéèêëíìîïñóòôöõúùûüýÿ", "ÁÀÂÄÃÅÇÉÈÊËÍÌÎÏÑÓÒÔÖÕÚÙÛÜÝ", "\u0300\u0301\u0308\u030a\u0323\u0327", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
             "\t\n\r \u00a0\u2009\u3000\u0001\u001f\u200b\u200d\u00ad", "0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
    for _ in range(count):
        parts = []
        for _ in range(draw.randint(1, 14)):
            kind = draw.random()
            if kind < 0.45:
                word = draw.choice(STEMS) + "".join(draw.choice(ENDINGS) for _ in range(draw.randint(0, 2)))
                parts.append(draw.choice([word, word.capitalize(), word.upper()]))
            elif kind < 0.9:
                pool = draw.choice(pools)
                parts.append("".join(draw.choice(pool) for _ in range(draw.randint(1, 6))))
            else:
                parts.append("".join(draw.choice(draw.choice(pools)) for _ in range(draw.randint(1, 12))))
            parts.append(draw.choice(["", " ", " ", " "]))
        yield "".join(parts)


def tokenizer(vocab_file):
    made = BertWordPieceTokenizer(str(vocab_file), lowercase=True)
    made.add_special_tokens(SPECIAL)
    made.enable_truncation(MAX_LENGTH)
    return made


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("out", type=pathlib.Path)
    options.add_argument("--model", type=pathlib.Path, default=pathlib.Path("models/minilm"))
    options = options.parse_args()
    vocab = vocabulary()
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write("\n".join(vocab) + "\n")
        file.flush()
        small, model = tokenizer(file.name), tokenizer(options.model / "vocab.txt")
    texts = list(dict.fromkeys(HANDMADE + list(generated(160))))
    with options.out.open("w", encoding="ascii") as out:
        head = {"made_by": "tools/make_wordpiece_golden.py", "tokenizers": tokenizers.__version__, "max_length": MAX_LENGTH}
        out.write(json.dumps(head)[:-1] + ',\n"vocabulary": ' + json.dumps(vocab) + ',\n"cases": [\n')
        rows = ({"text": t, "ids": small.encode(t).ids, "minilm": model.encode(t).ids} for t in texts)
        out.write(",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]}\n")
    print(f"{options.out}: {len(texts)} texts, {len(vocab)} pieces, tokenizers {tokenizers.__version__}")


if __name__ == "__main__":
    main()
