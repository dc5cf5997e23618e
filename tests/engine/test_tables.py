"""CSV and TSV: constants once, dittos for repeated cells."""

import itertools

from cavemem_mcp.engine import compress


def test_constant_columns_are_stated_once_and_long_repeated_cells_are_dittos() -> None:
    rows = "\n".join(
        f"{number},{'Northwind Traders' if number % 7 else 'Contoso'},paid in full,{number}.50" for number in range(30)
    )
    result = compress(f"id,customer,state,total\n{rows}\n")
    assert result.content_type == "csv"
    assert result.lossless
    assert result.text.split("\n")[:5] == [
        "[… CSV: ^ repeats the cell above; in all rows: 3:state=paid in full]",
        "id,customer,total",
        "0,Contoso,0.50",
        "1,Northwind Traders,1.50",
        "2,^,2.50",
    ]


def test_dittos_never_refer_to_a_row_that_the_focus_left_out() -> None:
    rows = "\n".join(f"k{number},Northwind Traders,{number * 7919 % 997},x{number}" for number in range(400))
    result = compress(
        f"key,customer,amount,tag\n{rows}\nk,Contoso Limited,1,x\n", query_terms=("k321",), token_budget=250
    )
    lines = result.text.split("\n")
    assert any(line.startswith("k321,") for line in lines)
    for above, line in itertools.pairwise(lines):
        if above.startswith("[… L"):
            assert "^" not in line


def test_a_text_with_a_mark_of_its_own_gets_no_dittos() -> None:
    rows = "\n".join(f"{number},Northwind Traders,paid in full,{'^' if number == 3 else 'a'}" for number in range(30))
    assert "\n4,Northwind Traders" in compress(f"id,customer,state,mark\n{rows}\n5,Contoso,open,b\n").text
