// SPDX-License-Identifier: Apache-2.0
//
// Tables from CSV files: what is read, and one message for each way in which a file or the options can be wrong.
#include <cupola/data/csv.hpp>

#include "../test.hpp"

#include "files_support.hpp"
#include "support.hpp"

using namespace cupola_tests;

namespace {

class CsvFolder : public TemporaryFolder {
public:
    [[nodiscard]] std::string file(const std::string& contents, const std::string& name = "a.csv") const {
        return write(name, Bytes(contents.begin(), contents.end()));
    }
    /// The message of the DataError for these contents, without the folder.
    [[nodiscard]] std::string refusal(const std::string& contents,
                                      const CsvOptions& options = {.targets = {"y"}}) const {
        return without_folder(message_of<DataError>([&] { static_cast<void>(read_csv(file(contents), options)); }));
    }
    [[nodiscard]] std::string without_folder(std::string message) const {
        const std::string folder = path() + "/";
        for (std::size_t at = message.find(folder); at != std::string::npos; at = message.find(folder)) {
            message.erase(at, folder.size());
        }
        return message;
    }
};

std::vector<float> inputs_of(const Table& table) {
    std::vector<float> result;
    for (std::int64_t i = 0; i < table.size(); ++i) {
        result.insert(result.end(), table.sample(i).begin(), table.sample(i).end());
    }
    return result;
}

template <class T>
std::vector<T> targets_of(const Table& table, std::size_t column = 0) {
    const auto width = static_cast<std::size_t>(table.target_columns()[column].shape.size());
    std::vector<T> result;
    for (std::int64_t i = 0; i < table.size(); ++i) {
        const auto* values = static_cast<const T*>(table.target(i, column));
        result.insert(result.end(), values, values + width);
    }
    return result;
}

}  // namespace

TEST_CASE("numbers of chosen columns become inputs and targets in the order of the options") {
    const CsvFolder folder;
    const std::string path = folder.file("id,a,b,y,c\nx1,1,2.5,-3,4e2\nx2,+5,.5,1e-3,-0\n");
    const Table table = read_csv(path, {.inputs = {"c", "a"}, .targets = {"y", "b"}});
    CHECK(table.name() == path);
    CHECK(table.size() == 2);
    CHECK(table.sample_shape() == Shape{2});
    CHECK(inputs_of(table) == std::vector<float>{400, 1, 0, 5});
    CHECK(table.target_columns().size() == 1);
    CHECK(table.target_columns()[0] == ColumnSpec{"target", ElementType::float32, {2}});
    CHECK(targets_of<float>(table) == std::vector<float>{-3, 2.5F, 1e-3F, 0.5F});
    CHECK(table.header() == std::vector<std::string>{"id", "a", "b", "y", "c"});
    CHECK(table.classes().empty());
}

TEST_CASE("without a list of inputs every column that is no target is one") {
    const CsvFolder folder;
    const Table table = read_csv(folder.file("a,y,b\n1,2,3\n4,5,6"), {.targets = {"y"}});
    CHECK(inputs_of(table) == std::vector<float>{1, 3, 4, 6});
    CHECK(table.options().inputs == std::vector<std::string>{"a", "b"});
}

TEST_CASE("classes are numbered by their bytes, and by value where all are whole numbers") {
    const CsvFolder folder;
    const Table words = read_csv(folder.file("a,kind\n1,pear\n2,apple\n3,pear\n4,fig\n"), {.label = "kind"});
    CHECK(words.target_columns()[0] == ColumnSpec{"target", ElementType::int32, {1}});
    CHECK(words.classes() == std::vector<std::string>{"apple", "fig", "pear"});
    CHECK(targets_of<std::int32_t>(words) == std::vector<std::int32_t>{2, 0, 2, 1});
    const Table numbers = read_csv(folder.file("a,kind\n1,10\n2,9\n3,-1\n4,10\n"), {.label = "kind"});
    CHECK(numbers.classes() == std::vector<std::string>{"-1", "9", "10"});
    CHECK(targets_of<std::int32_t>(numbers) == std::vector<std::int32_t>{2, 1, 0, 2});
    const Table mixed = read_csv(folder.file("a,kind\n1,10\n2,9\n3,9a\n"), {.label = "kind"});
    CHECK(mixed.classes() == std::vector<std::string>{"10", "9", "9a"});
    CHECK(message_of<InvalidArgument>([&] { static_cast<void>(words.classes("sort")); }) ==
          "the table of " + words.name() + " has no target \"sort\"");
}

TEST_CASE("whole numbers are one class however they are written, and other classes are as they are written") {
    const CsvFolder folder;
    const Table numbers = read_csv(folder.file("a,kind\n1,01\n2,2\n3,1\n4,+1\n5,-0\n6,0\n"), {.label = "kind"});
    CHECK(numbers.classes() == std::vector<std::string>{"0", "1", "2"});
    CHECK(targets_of<std::int32_t>(numbers) == std::vector<std::int32_t>{1, 2, 1, 1, 0, 0});
    const Table test = read_csv(folder.file("a,kind\n1,002\n2,1\n3,00\n", "test.csv"), numbers);
    CHECK(targets_of<std::int32_t>(test) == std::vector<std::int32_t>{2, 1, 0});
    const Table words = read_csv(folder.file("a,kind\n1,01\n2,1\n3,x\n4,1.0\n5,X\n"), {.label = "kind"});
    CHECK(words.classes() == std::vector<std::string>{"01", "1", "1.0", "X", "x"});
    // Beyond 64 bits they are texts, also where a double would have them equal.
    const Table ids =
        read_csv(folder.file("a,kind\n1,100000000000000000001\n2,100000000000000000002\n3,x\n"), {.label = "kind"});
    CHECK(ids.classes().size() == 3);
    const CsvOptions kind{.label = "kind"};
    CHECK(folder.refusal("a,kind\n1,01\n2,1\n3,+1\n", kind) ==
          "a.csv, column \"kind\": all rows have the class \"1\"; classification needs at least 2 classes");
    CHECK(folder.refusal("a,kind\n1,fig\n2,\" fig\"\n3,plum\n", kind) ==
          "a.csv, column \"kind\": the classes \" fig\" and \"fig\" differ by blanks alone");
    CHECK(folder.refusal("a,kind\n1,2\n2,1\n3,\"2 \"\n", kind) ==
          "a.csv, column \"kind\": the classes \"2\" and \"2 \" differ by blanks alone");
    CHECK(folder.refusal("a,kind\n1,1\n2,2.5\n3,1.0\n", kind) ==
          "a.csv, column \"kind\": the classes \"1\" and \"1.0\" are the same number; write it in one way");
    CHECK(message_of<DataError>([&] {
              (void)read_csv(folder.file("a,kind\n1,1.0\n"), numbers);
          }).ends_with("the class \"1.0\" is not one of " + numbers.name() + ", which are \"0\", \"1\", \"2\""));
}

TEST_CASE("several targets have their own names, types and extents") {
    const CsvFolder folder;
    const Table table = read_csv(folder.file("left,top,kind,area\n1,2,cat,7\n3,4,ant,8\n"),
                                 {.named_targets = {{.name = "kind", .columns = {"kind"}, .classes = true},
                                                    {.name = "box", .columns = {"top", "left"}}}});
    REQUIRE(table.target_columns().size() == 2);
    CHECK(table.target_columns()[0] == ColumnSpec{"kind", ElementType::int32, {1}});
    CHECK(table.target_columns()[1] == ColumnSpec{"box", ElementType::float32, {2}});
    CHECK(targets_of<std::int32_t>(table, 0) == std::vector<std::int32_t>{1, 0});
    CHECK(targets_of<float>(table, 1) == std::vector<float>{2, 1, 4, 3});
    CHECK(inputs_of(table) == std::vector<float>{7, 8});
    CHECK(table.classes("kind")[1] == "cat");
    // The names of the columns belong to the copy, not to the table that was copied.
    auto first = std::make_unique<Table>(table);
    const Table copy = *first;
    first.reset();
    CHECK(copy.target_columns()[1].name == "box");
}

TEST_CASE("quotes, blanks, line ends, a byte order mark and a last line without an end are read as RFC 4180 has them") {
    const CsvFolder folder;
    const CsvOptions options{.inputs = {"a"}, .label = "k"};
    for (const std::string& contents :
         {std::string("a,k\n1,x\n2,y\n"), std::string("a,k\r\n1,x\r\n2,y\r\n"),
          std::string("\xEF\xBB\xBF"
                      "a,k\n1,x\n2,y"),
          std::string("\"a\",\"k\"\r\n\"1\",\"x\"\r\n\"2\",\"y\""), std::string(" a ,\tk\n 1\t,x \n2 , y\n\n\r\n\n"),
          std::string("a,k\n1,x\r\n2,\"y\"\r")}) {
        CAPTURE(contents);
        const Table table = read_csv(folder.file(contents), options);
        CHECK(inputs_of(table) == std::vector<float>{1, 2});
        CHECK(table.classes() == std::vector<std::string>{"x", "y"});
    }
    const Table quoted = read_csv(folder.file("a,k\n1,\"one, \"\"two\"\"\nthree \"\n2,\"\"\"\"\n"), options);
    CHECK(quoted.classes() == std::vector<std::string>{"\"", "one, \"two\"\nthree "});
    const Table semicolons = read_csv(folder.file("a;k\n1;x,y\n2;z\n"), {.label = "k", .separator = ';'});
    CHECK(semicolons.classes() == std::vector<std::string>{"x,y", "z"});
    const Table tabs = read_csv(folder.file("a\tk\n1\tx\n2\ty\n"), {.label = "k", .separator = '\t'});
    CHECK(inputs_of(tabs) == std::vector<float>{1, 2});
}

TEST_CASE("the numbers of a file many times larger than the buffer are those of strtof, and line numbers are right") {
    const CsvFolder folder;
    std::string contents = "a,text,y\n";
    std::vector<float> expected;
    for (std::uint64_t i = 0; i < 20'000; ++i) {
        const auto words = RandomStream(5, RngDomain::user, 0, i).words(0);
        char number[64];
        std::snprintf(number, sizeof number, "%.*g", static_cast<int>(words[0] % 12 + 1),
                      (static_cast<double>(words[1]) - 2e9) * std::pow(10.0, static_cast<double>(words[2] % 40) - 25));
        expected.push_back(std::strtof(number, nullptr));
        // Quoted fields of many lengths, so that records end at any place of the buffer.
        contents += std::string(number) + ",\"" + std::string(words[3] % 40, 'x') + "\"\"\n\"," + number + "\n";
    }
    REQUIRE(contents.size() > 8 * impl::CsvRecords::first_buffer);
    const Table table = read_csv(folder.file(contents), {.inputs = {"a"}, .targets = {"y"}});
    CHECK(inputs_of(table) == expected);
    CHECK(targets_of<float>(table) == expected);
    CHECK(folder.refusal(contents + "1,2\n", {.inputs = {"a"}, .targets = {"y"}}) ==
          "a.csv, line 40002 has 2 fields; the first line has 3");
}

TEST_CASE("numbers beside zero become the nearest float") {
    const CsvFolder folder;
    const Table table = read_csv(folder.file("a,y\n1e-44,1e-60\n3.4028235e38,-1e-46\n"), {.targets = {"y"}});
    CHECK(inputs_of(table) == std::vector<float>{1e-44F, 3.4028235e38F});
    CHECK(targets_of<float>(table) == std::vector<float>{0, 0});
}

TEST_CASE("a file with another syntax is rejected with its line") {
    const CsvFolder folder;
    CHECK(folder.refusal("") == "a.csv is empty: its first line must name the columns");
    CHECK(folder.refusal("\xEF\xBB\xBF") == "a.csv is empty: its first line must name the columns");
    CHECK(folder.refusal("\n\n") == "a.csv is empty: its first line must name the columns");
    CHECK(folder.refusal("a,y") == "a.csv has a header and no rows");
    CHECK(folder.refusal("a,y\n\n") == "a.csv has a header and no rows");
    CHECK(folder.refusal("a,y\n1,2\n3\n") == "a.csv, line 3 has 1 field; the first line has 2");
    CHECK(folder.refusal("a,y\n1,2\n3,4,\n") == "a.csv, line 3 has 3 fields; the first line has 2");
    CHECK(folder.refusal("a,y\n1,2\n\n\n3,4\n") == "a.csv, line 3 is empty, and there are records after it");
    CHECK(folder.refusal("t,a,y\n\"1\n\",2,3\n3,\"4,4\n5,6,7\n", {.inputs = {"a"}, .targets = {"y"}}) ==
          "a.csv, line 4: the quotes of field 2 are not closed");
    CHECK(folder.refusal("a,y\n\"1\"2,2\n") == "a.csv, line 2: field 1 goes on behind its closing quote");
    CHECK(
        folder.refusal("a,y\n1,5\"\n") ==
        "a.csv, line 2: field 2 has a quote inside and is not in quotes; a field with a quote is written \"...\", each "
        "quote inside it twice");
    CHECK(folder.refusal("a,y\n" + std::string(70'000, ',')) == "a.csv, line 2 has more than 65536 fields");
    CHECK(folder.refusal("a,y\n1," + std::string((1 << 24) + 10, '1')) ==
          "a.csv, line 2: the record is longer than 16777216 bytes");
    CHECK(contains(message_of<DataError>([&] { static_cast<void>(read_csv(folder.path("none"), {.label = "y"})); }),
                   "none does not exist"));
    CHECK(contains(message_of<DataError>([&] { static_cast<void>(read_csv(folder.path(), {.label = "y"})); }),
                   "is not a regular file"));
}

TEST_CASE("a file in UTF-16, and line ends that are carriage returns alone, are rejected by name") {
    const CsvFolder folder;
    CHECK(folder.refusal(std::string("\xFF\xFEy\0,\0b\0\n\0", 10)) == "a.csv is a text in UTF-16; save it in UTF-8");
    CHECK(folder.refusal(std::string("\xFE\xFF\0y\0,\0b\0\n", 10)) == "a.csv is a text in UTF-16; save it in UTF-8");
    CHECK(folder.refusal("x,y\r1,2\r3,4\r") ==
          "a.csv has lines that end with a carriage return alone; they must end with a line feed");
    CHECK(read_csv(folder.file("\"x\r\nof\",y\r\n1,2\r\n"), {.targets = {"y"}}).size() == 1);
}

TEST_CASE("a field that is no number, or has no value, is rejected with its line and column") {
    const CsvFolder folder;
    const auto of = [&](const std::string& field) { return folder.refusal("a,y\n1,2\n" + field + ",4\n"); };
    CHECK(of("abc") == "a.csv, line 3, column \"a\": \"abc\" is not a number");
    CHECK(of("1.5x") == "a.csv, line 3, column \"a\": \"1.5x\" is not a number");
    CHECK(of("0x10") == "a.csv, line 3, column \"a\": \"0x10\" is not a number");
    CHECK(of("+-1") == "a.csv, line 3, column \"a\": \"+-1\" is not a number");
    CHECK(of("\"1,5\"") == "a.csv, line 3, column \"a\": \"1,5\" is not a number");
    CHECK(of("") == "a.csv, line 3, column \"a\": there is no value");
    CHECK(of("  ") == "a.csv, line 3, column \"a\": there is no value");
    CHECK(of("nan") == "a.csv, line 3, column \"a\": \"nan\" is not finite");
    CHECK(of("-Inf") == "a.csv, line 3, column \"a\": \"-Inf\" is not finite");
    CHECK(of("1e39") == "a.csv, line 3, column \"a\": \"1e39\" is outside the range of a 32-bit float");
    CHECK(of("-1e999") == "a.csv, line 3, column \"a\": \"-1e999\" is outside the range of a 32-bit float");
    CHECK(of("\"a\tb\nc\x7F\"") == "a.csv, line 3, column \"a\": \"a?b?c?\" is not a number");
    CHECK(of(std::string(59, 'x') + "\xC3\xA9") ==
          "a.csv, line 3, column \"a\": \"" + std::string(59, 'x') + "...\" is not a number");
    CHECK(folder.refusal("a,k\n1,x\n2,\n", {.label = "k"}) == "a.csv, line 3, column \"k\": there is no value");
    CHECK(folder.refusal("a,k\n1,x\n2,x\n", {.label = "k"}) ==
          "a.csv, column \"k\": all rows have the class \"x\"; classification needs at least 2 classes");
}

TEST_CASE("any bytes give a table or a message of one line") {
    const CsvFolder folder;
    const std::string valid =
        "\xEF\xBB\xBF"
        "a,\"b\",y\r\n1,\"2\",-3e1\r\n\"4\",.5,\"6\"\n7,8,9";
    const std::string letters = "\",\r\n 0e+-.x\xC3\t";
    int tables = 0, refused = 0;
    for (std::uint64_t i = 0; i < 3000; ++i) {
        std::string contents = valid;
        const auto words = RandomStream(11, RngDomain::user, 0, i).words(0);
        for (std::uint32_t change = 0; change <= words[0] % 3 && !contents.empty(); ++change) {
            const std::size_t at = words[1 + change] % contents.size();
            const char letter = letters[(words[1 + change] >> 16) % letters.size()];
            switch (words[1 + change] >> 30) {
                case 0: contents[at] = letter; break;
                case 1: contents.insert(at, 1, letter); break;
                case 2: contents.erase(at, 1); break;
                default: contents.resize(at + 1);
            }
        }
        const std::string message = folder.refusal(contents);
        CAPTURE(contents);
        if (message == "(no exception)") {
            ++tables;
        } else {
            ++refused;
            CHECK(message.starts_with("a.csv"));
            CHECK(std::ranges::none_of(message, [](unsigned char c) { return c < 0x20; }));
        }
    }
    CHECK(tables > 300);
    CHECK(refused > 1000);
}

TEST_CASE("a column twice, or one that does not exist, is rejected with the names of the columns") {
    const CsvFolder folder;
    CHECK(folder.refusal("a,y,b,a\n1,2,3,4\n") == "a.csv has the column \"a\" twice: columns 1 and 4");
    CHECK(folder.refusal("a,b\n1,2\n") == "a.csv has no column \"y\"; its columns are \"a\", \"b\"");
    CHECK(folder.refusal("a;y\n1;2\n") ==
          "a.csv has no column \"y\"; its columns are \"a;y\"; the option .separator names another character than ','");
    CHECK(folder.refusal("y\n1\n") == "a.csv has no column beside its targets: \"y\"");
    CHECK(folder.refusal("a,y\n1,2\n", {.inputs = {"A"}, .targets = {"y"}}) ==
          "a.csv has no column \"A\"; its columns are \"a\", \"y\"");
    std::string many = "c0";
    for (int i = 1; i < 30; ++i) many += ",c" + std::to_string(i);
    CHECK(contains(folder.refusal(many + "\n"), "\"c19\" and 10 more"));
}

TEST_CASE("a table may have many columns") {
    const CsvFolder folder;
    constexpr int columns = 60'000;
    std::string names, values;
    for (int i = 0; i < columns; ++i) {
        names += std::to_string(i) + ",";
        values += std::to_string(i % 7) + ",";
    }
    const Table table = read_csv(folder.file(names + "y\n" + values + "1\n"), {.targets = {"y"}});
    CHECK(table.sample_shape() == Shape{columns});
    CHECK(table.sample(0)[59'999] == 59'999 % 7);
    CHECK(read_csv(table.name(), table).options().inputs[59'999] == "59999");
}

TEST_CASE("options that contradict themselves are rejected") {
    const CsvFolder folder;
    const std::string path = folder.file("a,b,y\n1,2,3\n");
    const auto refusal = [&](const CsvOptions& options) {
        return folder.without_folder(message_of<InvalidArgument>([&] { static_cast<void>(read_csv(path, options)); }));
    };
    CHECK(refusal({}) ==
          "the target of a.csv must be given by one of label, targets and named_targets, not none of them");
    CHECK(refusal({.label = "y", .targets = {"y"}}) ==
          "the target of a.csv must be given by one of label, targets and named_targets, not several of them");
    CHECK(refusal({.inputs = {"a", "y"}, .targets = {"y"}}) == "the column \"y\" of a.csv is used twice");
    CHECK(refusal({.inputs = {"a", "a"}, .targets = {"y"}}) == "the column \"a\" of a.csv is used twice");
    CHECK(refusal({.targets = {"y", "y"}}) == "the column \"y\" of a.csv is used twice");
    CHECK(refusal({.targets = {"y"}, .separator = '"'}) ==
          "the separator of a.csv cannot be a quote, a line end or a zero byte");
    CHECK(refusal({.named_targets = {{.name = "input", .columns = {"y"}}}}) ==
          "a target of a.csv cannot have the name \"input\"");
    CHECK(refusal({.named_targets = {{.name = "y"}}}) ==
          "the target \"y\" of a.csv has 0 columns; numbers need at least 1");
    CHECK(refusal({.named_targets = {{.columns = {"a", "y"}, .classes = true}}}) ==
          "the target \"target\" of a.csv has 2 columns; classes are in 1 column");
    CHECK(refusal({.named_targets = {{.columns = {"a"}}, {.columns = {"y"}}}}) ==
          "a.csv has two targets named \"target\"");
    CHECK(refusal({.named_targets = std::vector<CsvTarget>(8, {.columns = {"a"}})}) ==
          "a.csv can have at most 7 targets, not 8");
}

TEST_CASE("a table for evaluation has the columns and the numbers of classes of the training's") {
    const CsvFolder folder;
    const Table training = read_csv(folder.file("a;b;kind\n1;2;fig\n3;4;pear\n5;6;apple\n", "train.csv"),
                                    {.inputs = {"b", "a"}, .label = "kind", .separator = ';'});
    // Other order of columns, and not every class.
    const Table test = read_csv(folder.file("kind;a;b\npear;7;8\n"), training);
    CHECK(inputs_of(test) == std::vector<float>{8, 7});
    CHECK(targets_of<std::int32_t>(test) == std::vector<std::int32_t>{2});
    CHECK(test.classes() == training.classes());
    const auto refusal = [&](const std::string& contents) {
        return folder.without_folder(
            message_of<DataError>([&] { static_cast<void>(read_csv(folder.file(contents), training)); }));
    };
    CHECK(
        refusal("a;b;kind\n1;2;plum\n") ==
        "a.csv, line 2, column \"kind\": the class \"plum\" is not one of train.csv, which are \"apple\", \"fig\", \"pear\"");
    CHECK(refusal("a;c;kind\n1;2;fig\n") ==
          "a.csv has no column \"b\", which train.csv has; its columns are \"a\", \"c\", \"kind\"");
    CHECK(refusal("a;b;kind;c\n1;2;fig;3\n") == "a.csv has a column \"c\", which train.csv does not have");
}

TEST_CASE("a file without a header has the columns 1, 2 and on, and its first line is a row") {
    const CsvFolder folder;
    const std::string flowers = "5.1,3.5,setosa\n4.9,3.0,setosa\n6,2.2,other\n";
    const Table table = read_csv(folder.file(flowers, "train.csv"), {.label = "3", .header = false});
    CHECK(table.header() == std::vector<std::string>{"1", "2", "3"});
    CHECK(table.options().inputs == std::vector<std::string>{"1", "2"});
    CHECK(inputs_of(table) == std::vector<float>{5.1F, 3.5F, 4.9F, 3, 6, 2.2F});
    CHECK(targets_of<std::int32_t>(table) == std::vector<std::int32_t>{1, 1, 0});
    CHECK(inputs_of(read_csv(folder.file("7,8\n"), table)) == std::vector<float>{7, 8});
    // Its targets are missing, and not the ignored column, which is the last one by its number.
    const Table last_ignored =
        read_csv(folder.file("1,2,9\n3,4,9\n", "last.csv"), {.targets = {"2"}, .header = false, .ignored = {"3"}});
    CHECK(folder.without_folder(message_of<DataError>([&] { (void)read_csv(folder.file("5,9\n"), last_ignored); })) ==
          "a.csv has no column \"3\", which last.csv has; its columns are \"1\", \"2\"");
    const Table first_ignored =
        read_csv(folder.file("9,1,2\n9,3,4\n", "first.csv"), {.targets = {"3"}, .header = false, .ignored = {"1"}});
    CHECK(inputs_of(read_csv(folder.file("9,5\n"), first_ignored)) == std::vector<float>{5});
    CHECK(folder.refusal("1,2\n3\n", {.targets = {"2"}, .header = false}) ==
          "a.csv, line 2 has 1 field; the first line has 2");
    CHECK(folder.refusal("a,2\n", {.targets = {"2"}, .header = false}) ==
          "a.csv, line 1, column \"1\": \"a\" is not a number");
    CHECK(folder.refusal("", {.targets = {"2"}, .header = false}) == "a.csv is empty");
}

TEST_CASE("a first line that is a row, and would be lost as names, is rejected unless the options say which it is") {
    const CsvFolder folder;
    const auto message = [](const std::string& names) {
        return "a.csv: the first line seems to be a row and not the names of the columns: " + names +
               "; .header = false reads it as a row and calls the columns \"1\", \"2\" and on, .header = true takes it as "
               "names";
    };
    // The class in the rows, and numbers that are no names.
    CHECK(folder.refusal("5,setosa\n6,setosa\n7,other\n", {.label = "setosa"}) == message("\"5\", \"setosa\""));
    CHECK(folder.refusal("5.1,3.5,setosa\n4.9,3.0,other\n6,2.2,iris\n", {.label = "setosa"}) ==
          message("\"5.1\", \"3.5\", \"setosa\""));
    CHECK(folder.refusal("-1e3,y\n1,a\n2,b\n", {.label = "y"}) == message("\"-1e3\", \"y\""));
    CHECK(folder.refusal("4,7,2\n1,2,3\n", {.targets = {"2"}}) == message("\"4\", \"7\", \"2\""));
    // Names that are whole and ascend: pixels, years.
    CHECK(read_csv(folder.file("y,0,1,2\n1,2,3,4\n"), {.targets = {"y"}}).size() == 1);
    CHECK(read_csv(folder.file("2019,2020,2021\n1,2,3\n"), {.targets = {"2021"}}).size() == 1);
    CHECK(read_csv(folder.file("1.2.3,.,-,1e,y\n1,2,3,4,5\n"), {.targets = {"y"}}).size() == 1);
    // A line that has a word where a row needs a number is no row, whatever else is in it.
    CHECK(inputs_of(read_csv(folder.file("mean,0.5,0.25,y\n1,2,3,4\n"), {.targets = {"y"}})) ==
          std::vector<float>{1, 2, 3});
    CHECK(read_csv(folder.file("0.5,0.25,y\n1,2,3\n"), {.targets = {"y"}}).size() == 1);
    CHECK(read_csv(folder.file("words,2020,spam\n1,2,spam\n1,2,ham\n"), {.label = "spam"}).classes() ==
          std::vector<std::string>{"ham", "spam"});
    // A column that is not used may have any name.
    CHECK(read_csv(folder.file("a,y,0.5\n1,2,x\n"), {.inputs = {"a"}, .targets = {"y"}}).size() == 1);
    // The wavelengths of a spectrum, and a class that is called as its column is.
    CHECK(read_csv(folder.file("400.5,401.5,spam\n1,2,spam\n1,2,ham\n"), {.label = "spam", .header = true}).size() ==
          2);
}

TEST_CASE("ignored columns are no inputs, and a column without a name has to be ignored or left out of the inputs") {
    const CsvFolder folder;
    const std::string pandas = ",a,b,y\n0,1,2,x\n1,3,4,z\n";
    CHECK(
        folder.refusal(pandas, {.label = "y"}) ==
        "a.csv: column 1 has no name, as an index that pandas writes, and would be an input; .ignored = {\"\"} leaves such "
        "columns out");
    CHECK(
        folder.refusal("a,y,\n1,2,\n") ==
        "a.csv: column 3 has no name, as an index that pandas writes, and would be an input; .ignored = {\"\"} leaves such "
        "columns out");
    const Table table = read_csv(folder.file(pandas, "train.csv"), {.label = "y", .ignored = {""}});
    CHECK(inputs_of(table) == std::vector<float>{1, 2, 3, 4});
    CHECK(inputs_of(read_csv(folder.file(pandas), {.inputs = {"b"}, .label = "y"})) == std::vector<float>{2, 4});
    CHECK(inputs_of(read_csv(folder.file(",a,,y\nu,1,v,2\n"), {.targets = {"y"}, .ignored = {""}})) ==
          std::vector<float>{1});
    CHECK(inputs_of(read_csv(folder.file("a,note,y\n1,any,2\n"), {.targets = {"y"}, .ignored = {"note"}})) ==
          std::vector<float>{1});
    // A file for evaluation may have the ignored columns or not.
    CHECK(inputs_of(read_csv(folder.file("a,b,y\n5,6,z\n"), table)) == std::vector<float>{5, 6});
    CHECK(folder.refusal("a,y\n1,2\n", {.targets = {"y"}, .ignored = {"id"}}) ==
          "a.csv has no column \"id\"; its columns are \"a\", \"y\"");
    CHECK(folder.refusal(",a,,y\n1,2,3,4\n", {.inputs = {""}, .targets = {"y"}}) ==
          "a.csv has several columns without a name, and one of them is used");
    CHECK(folder.without_folder(message_of<InvalidArgument>([&] {
        (void)read_csv(folder.file("a,y\n1,2\n"), {.targets = {"y"}, .ignored = {"y"}});
    })) == "the column \"y\" of a.csv is used and ignored");
}

TEST_CASE("a file without the targets is read by the columns of the training") {
    const CsvFolder folder;
    const Table training =
        read_csv(folder.file("id,a,y,b\n1,2,yes,3\n4,5,no,6\n", "train.csv"), {.label = "y", .ignored = {"id"}});
    CHECK(training.has_targets());
    const Table test = read_csv(folder.file("b,id,a\n7,8,9\n", "test.csv"), training);
    CHECK(inputs_of(test) == std::vector<float>{9, 7});
    CHECK_FALSE(test.has_targets());
    CHECK(test.target_columns().size() == 0);
    CHECK(test.classes() == std::vector<std::string>{"no", "yes"});
    // What was read without targets has the options of the training, and may be followed by a file that has them.
    CHECK(targets_of<std::int32_t>(read_csv(folder.file("a,b,y\n1,2,yes\n"), test)) == std::vector<std::int32_t>{1});
    const Table two = read_csv(folder.file("a,y,z\n1,2,3\n", "two.csv"), {.targets = {"y", "z"}});
    CHECK(inputs_of(read_csv(folder.file("a\n5\n"), two)) == std::vector<float>{5});
    CHECK(folder.without_folder(message_of<DataError>([&] { (void)read_csv(folder.file("a,z\n5,6\n"), two); })) ==
          "a.csv has no column \"y\", which two.csv has; its columns are \"a\", \"z\"");
}
