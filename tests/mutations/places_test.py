#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A text is found by the definition that it is in, and what is not in exactly one place is reported with the places. What cannot be written
as a choice between the old and the new text is an error."""
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))

from places import Headers, Wrong, require_complete  # noqa: E402

FIRST = r"""// { a brace in a comment
#define BRACE {
namespace cupola { inline namespace ABI { namespace impl {
inline constexpr std::array<int, 2> limits = {
    3, 4};
template <class T, class U>
    requires(sizeof(T) > 2) &&
            std::same_as<T, U>
class [[nodiscard]] Queue : public Base<T> {
public:
    explicit Queue(int count = {}) : count_{count}, names_("{") { begin(count); }
    ~Queue() { end(); }
    void operator()(int i) const { call(i); }
    static T of(T value)
        requires requires(T t) { t.size(); }
    {
        // as in
        const auto twice = [&](int v) { return 2 * v; };
        return twice(value,
                     1'000 * 'x');  // the end
    }

private:
    struct Slot {
        int step{0};
        int next() const { return step + 1; }
    };
    int count_ = 0;
};

template <class T>
__global__ void __launch_bounds__(128) kernel(const T* x) {
    step(x);
    step(x);
}
template <class T>
void Queue<T>::end() {
    if (count_ > 0) step(count_);
}
}}}  // namespace
"""
SECOND = """int next() { return 5; }
int same() { return 1; }
void begin_all() { again(); }
"""
THIRD = """int same() { return 1; }
"""


class PlacesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, text in (("first.hpp", FIRST), ("parts/second.hpp", SECOND), ("parts/third.hpp", THIRD)):
            self.write(name, text)

    def write(self, name: str, text: str):
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(text)

    def find(self, where: str, text: str, file: str = "") -> str:
        header, begin, end = Headers(self.folder).find(where, text, file)
        return f"{header.line(begin)} {header.text[begin:end]}"

    def error(self, where: str, text: str, file: str = "") -> str:
        with self.assertRaises(Wrong) as caught:
            self.find(where, text, file)
        return str(caught.exception)

    def test_kinds_of_definitions(self):
        self.assertEqual(self.find("limits", "4"), "first.hpp:5 4")
        self.assertEqual(self.find("Queue::Queue", "begin(count);"), "first.hpp:11 begin(count);")
        self.assertEqual(self.find("~Queue", "end();"), "first.hpp:12 end();")
        self.assertEqual(self.find("operator()", "call(«i»)"), "first.hpp:13 i")
        self.assertEqual(self.find("Queue::of", "2 * v"), "first.hpp:18 2 * v")
        self.assertEqual(self.find("Queue", "count_ = «0»"), "first.hpp:28 0")
        self.assertEqual(self.find("kernel", "__launch_bounds__(«128»)"), "first.hpp:32 128")
        self.assertEqual(self.find("Queue::end", "count_ > 0"), "first.hpp:38 count_ > 0")

    def test_white_space_and_comments_do_not_matter(self):
        self.assertEqual(self.find("of", "return twice( value, «1'000 * 'x'» ); }"), "first.hpp:20 1'000 * 'x'")
        self.assertEqual(self.find("of", "{ const auto twice=«[&]»"), "first.hpp:18 [&]")
        self.assertEqual(self.find("Queue::Queue", 'names_( «"{"» )'), 'first.hpp:11 "{"')

    def test_words_are_whole(self):
        self.assertEqual(self.find("Queue::Queue", "count_{«count»}"), "first.hpp:11 count")
        self.assertIn("does not have this text", self.error("begin_all", "gain"))

    def test_a_class_or_a_file_tells_definitions_apart(self):
        self.assertEqual(self.find("Slot::next", "return"), "first.hpp:26 return")
        self.assertEqual(self.find("next", "step + 1"), "first.hpp:26 step + 1")
        self.assertEqual(self.find("same", "1", "third.hpp"), "parts/third.hpp:1 1")

    def test_another_file_or_another_line_needs_no_edit(self):
        self.write("first.hpp", "")
        self.write("moved/last.hpp", FIRST.replace("{ return step + 1; }", "{\n return step\n + 1;\n}"))
        self.assertEqual(self.find("next", "«step + 1»;"), "moved/last.hpp:27 step\n + 1")

    def test_errors_say_what_was_found_and_where(self):
        twice = "kernel has this text in 2 places (first.hpp:33, first.hpp:34), but must have it in one: step(x);"
        self.assertEqual(self.error("kernel", "step(x);"), twice)
        both = "same has this text in 2 places (parts/second.hpp:2, parts/third.hpp:1), but must have it in one: return 1;"
        self.assertEqual(self.error("same", "return 1;"), both)
        elsewhere = "next (first.hpp:26, parts/second.hpp:1) does not have this text, but the text is in parts/second.hpp:3: again();"
        self.assertEqual(self.error("next", "again();"), elsewhere)
        self.assertEqual(self.error("gone", "again();"), "nothing that is named gone is defined, but the text is in parts/second.hpp:3")
        in_file = "nothing that is named next is defined in third.hpp, but the text is in parts/second.hpp:1"
        self.assertEqual(self.error("next", "5", "third.hpp"), in_file)
        self.assertIn("but the text is in first.hpp:18, first.hpp:19, first.hpp:26, parts/second.hpp:1 and 2 more", self.error("gone", "return"))
        self.write("open.hpp", "void f() {")
        self.assertEqual(self.error("f", "{"), "a brace or a bracket is not closed in open.hpp")
        self.write("open.hpp", "}")
        self.assertEqual(self.error("f", "{"), "a brace is closed that is not open, in open.hpp:1")

    CHOICES = """int value(int a, int* p, const Pair& pair) {
    const Guard guard(a);
    if (a > 0) sum(a, [&] { return *p; });
    else sum(-a - 1, {});
    sum_ = call(a)[0] + pair.first * 2;
    return *q && !a;
}
"""

    def refusal(self, before: str, after: str) -> str:
        """Why a choice between two texts is refused, or nothing."""
        self.write("choices.hpp", self.CHOICES)
        header, begin, end = Headers(self.folder).find("value", before)
        try:
            require_complete(header, begin, end, after)
        except Wrong as error:
            return str(error)
        return ""

    def test_complete_texts(self):
        for before, after in (
            ("sum_ = «call(a)[0]»", "-1"),
            ("sum_ = «call(a)[0] + pair.first * 2»", "FloatWrite{}"),
            ("sum(«-a - 1»", "0"),
            ("return «*q && !a»", "&p == nullptr"),
            ("sum_ = call(a)[0] + pair.first * 2;", ""),
            ("sum_ = call(a)[0] + pair.first * 2;", "for (int i : {1, 2}) { sum_ = i; }"),
            ("if (a > 0) «sum(a, [&] { return *p; });» else", "a++;"),
            ("else «sum(-a - 1, {});»", ";"),
            ("{ «return *p;» }", "return 0;"),
        ):
            self.assertEqual(self.refusal(before, after), "", before)

    def test_incomplete_texts_are_refused(self):
        for before, after, problem in (
            ("-a «- 1»", "", "an expression is replaced by an expression (choices.hpp:4: - 1), but not by: nothing"),
            ("-a «- 1»", "+ 1", "the old text begins behind the operand of its first operator (choices.hpp:4: - 1)"),
            ("call«(a)»", "(0)", "the old text begins behind the operand of its first operator (choices.hpp:5: (a))"),
            ("«call(a)[0] +» pair", "1", "the old text begins or ends with an operator whose operand is not in it (choices.hpp:5: call(a)[0] +): "),
            ("pair.first «* 2»", "1", "the old text begins behind the operand of its first operator (choices.hpp:5: * 2)"),
            ("*q «&& !a»", "true", "the old text begins or ends with an operator whose operand is not in it (choices.hpp:6: && !a): && !a"),
            ("return «*p»", "*p ||", "the new text begins or ends with an operator whose operand is not in it (choices.hpp:3: *p): *p ||"),
            ("return «*p»", "*q;", "an expression is replaced by an expression (choices.hpp:3: *p), but not by: *q;"),
            ("pair.«first»", "second", "the old text is the end of a name (choices.hpp:5: first)"),
            ("call(«a)[0]»", "0", "a bracket of the old text is not closed in it (choices.hpp:5: a)[0]): a)[0]"),
            ("if («a > 0»)", "(a < 0", "a bracket of the new text is not closed in it (choices.hpp:3: a > 0): (a < 0"),
            ("sum_ = «call(a)[0] + pair.first * 2;»", "0;", "the old text ends as a statement, but does not begin as one (choices.hpp:5: "),
            ("return *q && !a;", "return a", "a statement is replaced by statements or nothing (choices.hpp:6: return *q && !a;), but not by: return a"),
            ("const Guard guard(a);", "", "what the old text declares would not be known behind it (choices.hpp:2: const Guard guard(a);)"),
        ):
            self.assertIn(problem, self.refusal(before, after) or "nothing", before)


if __name__ == "__main__":
    unittest.main()
